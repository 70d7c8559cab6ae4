package logstore

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// syncedFiles record which part of the newest segment is durable, so that Open notices when the end of the segment is missing.
// The store overwrites the older of the two files in place, which does not need space on a full disk.
var syncedFiles = [2]string{"SYNCED-1", "SYNCED-2"}

// syncedDelay is the maximum time between a commit and the record of it.
const syncedDelay = 500 * time.Millisecond

// syncedEnd is the recorded durable end of a segment.
type syncedEnd struct {
	number  uint64 // of the record; the higher one is current
	segment uint32
	end     int64
}

func (s syncedEnd) encode() []byte {
	frame := binary.LittleEndian.AppendUint64(beginFrame(nil), s.number)
	frame = binary.LittleEndian.AppendUint64(frame, uint64(s.end))
	endFrame(frame, s.segment)
	return frame
}

func decodeSynced(text []byte) (s syncedEnd, ok bool) {
	if len(text) != frameHeader+16 {
		return s, false
	}
	s.segment = binary.LittleEndian.Uint32(text[8:])
	payload, size := readFrame(text, s.segment)
	if size != len(text) {
		return s, false
	}
	s.number, s.end = binary.LittleEndian.Uint64(payload), int64(binary.LittleEndian.Uint64(payload[8:]))
	return s, true
}

// readSynced returns the current record. After a crash, one of the two files may be torn.
func (r *recovery) readSynced() (current syncedEnd, ok bool) {
	var wrong []Damage
	for _, name := range syncedFiles {
		name = r.fs.PathJoin(r.dir, name)
		text, err := readFile(r.fs, name)
		if err != nil {
			wrong = append(wrong, Damage{name, describe(err)})
			continue
		}
		s, valid := decodeSynced(text)
		if !valid {
			wrong = append(wrong, Damage{name, "checksum does not match"})
			continue
		}
		if !ok || s.number > current.number {
			current, ok = s, true
		}
	}
	if !ok {
		r.damage = append(r.damage, wrong...)
	}
	return current, ok
}

// checkSynced compares the newest segment with the record of its durable end.
func (r *recovery) checkSynced() {
	s, ok := r.readSynced()
	if !ok || r.newest == nil {
		return
	}
	switch t := r.newest; {
	case t.number < s.segment:
		r.damaged(r.path(s.segment), "it is missing")
	case t.number == s.segment && t.end < s.end:
		r.damaged(t.path, "it has %d readable bytes instead of %d", t.end, s.end)
	}
	r.synced = s
}

// syncedRecorder records the durable end of the newest segment.
type syncedRecorder struct {
	files [2]vfs.File
	last  syncedEnd
	at    time.Time // of the last record
	timer *time.Timer
}

func (r *syncedRecorder) open(d *disk, last syncedEnd, create bool) (err error) {
	r.last = last
	for i, name := range syncedFiles {
		name = d.fs.PathJoin(d.logDir, name)
		if create {
			r.files[i], err = d.fs.Create(name, vfs.WriteCategoryUnspecified)
		} else {
			r.files[i], err = d.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *syncedRecorder) close() (err error) {
	for _, f := range r.files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// recordSynced records the durable end of the newest segment, or schedules this if the last record is recent.
func (w *writer) recordSynced(now bool) error {
	r, s := &w.recorder, w.active
	if r.last.segment == s.number && r.last.end == s.end {
		return nil
	}
	if wait := syncedDelay - time.Since(r.at); wait > 0 && !now {
		if r.timer == nil {
			r.timer = time.AfterFunc(wait, w.d.commitNow)
		} else {
			r.timer.Reset(wait)
		}
		return nil
	}
	next := syncedEnd{r.last.number + 1, s.number, s.end}
	f := r.files[next.number%2]
	_, err := f.WriteAt(next.encode(), 0)
	if err == nil {
		err = f.SyncData()
	}
	if err != nil {
		return err
	}
	r.last, r.at = next, time.Now()
	return nil
}

// createSynced creates the records of a new log.
func (w *writer) createSynced() error {
	if err := w.recorder.open(w.d, syncedEnd{}, true); err != nil {
		return err
	}
	defer w.recorder.close()
	for range syncedFiles {
		w.recorder.last.segment = 0 // write both files
		if err := w.recordSynced(true); err != nil {
			return err
		}
	}
	return syncDir(w.d.fs, w.d.logDir)
}

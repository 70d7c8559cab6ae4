package logstore

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
)

// cleanBytes is the number of bytes that a commit copies from a segment that is being cleaned, or the size of the commit if
// that is larger.
const cleanBytes = 1 << 20

// slackSegments is the number of segments of garbage that the log may always have.
const slackSegments = 4

// minGarbage is more than the garbage that a cleaning creates: the header of a frame and a record.
const minGarbage = 64

// cleaning is the copying of the live records of a segment to the newest segment.
type cleaning struct {
	segment *segment
	sealed  sealed
	rest    []placed // records that were live when the cleaning began
	offsets []uint32 // of these records
}

func (c *cleaning) add(p placed) {
	c.rest, c.offsets = append(c.rest, p), append(c.offsets, p.at.offset)
}

// hasWork reports whether a commit without changes is useful.
func (w *writer) hasWork() bool { return w.cleaning != nil || w.droppable || len(w.room) > 0 }

// clean drops segments and copies a part of a segment, in one frame.
func (w *writer) clean() error {
	if !w.hasWork() {
		return nil
	}
	budget := max(cleanBytes, len(w.frame))
	if err := w.roll(); err != nil {
		return err
	}
	w.begin()
	if w.droppable {
		w.droppable = false
		for _, s := range w.d.segments {
			if s != w.active && s.live == 0 && (w.cleaning == nil || w.cleaning.segment != s) && !w.isNeeded(s) {
				w.drop(s)
			}
		}
		if w.cleaning == nil {
			w.startCleaning(false)
		}
	}
	if w.cleaning == nil && len(w.room) > 0 && !w.startCleaning(true) && len(w.dropped) == 0 {
		w.removeSpare(0)
		for _, done := range w.room {
			close(done)
		}
		w.room = nil
	}
	if w.cleaning != nil {
		w.copySome(budget)
	}
	return w.write()
}

// isNeeded reports whether a tombstone in s refers to another segment that exists.
func (w *writer) isNeeded(s *segment) bool {
	for target := range s.targets {
		if w.d.segments[target] != nil {
			return true
		}
	}
	return false
}

// drop adds a record to the frame that removes a segment from the log.
func (w *writer) drop(s *segment) {
	w.frame = append(w.frame, kindDrop)
	w.frame = binary.AppendUvarint(w.frame, uint64(s.number))
	w.dropped = append(w.dropped, s)
}

// startCleaning starts to clean the segment with the most garbage, and reports whether it has found one: while more than
// half of the log is garbage, or, for MakeRoom, while a tenth of a segment is garbage.
func (w *writer) startCleaning(all bool) bool {
	var garbage, live int64
	var worst *segment
	for _, s := range w.d.segments {
		if s == w.active || s.broken || slices.Contains(w.dropped, s) {
			continue
		}
		garbage += s.garbage()
		live += s.liveBytes
		if (worst == nil || s.garbage() > worst.garbage()) && w.canCopy(s) {
			worst = s
		}
	}
	if worst == nil || worst.garbage() <= max(minGarbage, worst.end/10) || !all && garbage <= live+slackSegments*w.d.segmentBytes {
		return false
	}
	about, err := worst.file.Stat()
	if err != nil {
		return w.isBroken(worst, err)
	}
	c := &cleaning{segment: worst}
	var ok bool
	if c.sealed, ok, err = readSealed(worst.file, about.Size(), worst.number); err != nil || !ok {
		return w.isBroken(worst, err)
	}
	err = c.sealed.visitLive(func(k Key, offset uint32, bytes int64, transient bool) {
		at := place{worst.number, offset}
		if now, ok := w.d.index.find(k); ok && now == at {
			c.add(placed{key: k, at: at, bytes: bytes, transient: transient})
		}
	}, func(name string, offset uint32) {
		at := place{worst.number, offset}
		if now, ok := w.d.index.documents[name]; ok && now == at {
			c.add(placed{name: name, at: at})
		}
	})
	if err != nil {
		return w.isBroken(worst, err)
	}
	w.cleaning = c
	return true
}

// canCopy reports whether the disk has space for a copy of the live records of s. A small copy that frees much more space is
// always useful.
func (w *writer) canCopy(s *segment) bool {
	copied := s.liveBytes + s.deadBytes
	return copied <= min(cleanBytes, s.garbage()/2) || w.d.spaceFor(copied)
}

func (w *writer) isBroken(s *segment, err error) bool {
	s.broken = true
	w.cleaning = nil
	w.d.recordDamage(w.d.segmentName(s.number), errors.Join(err, errRecord))
	return false
}

// copySome copies records, up to about the given number of bytes, and drops the segment after the last record.
func (w *writer) copySome(budget int) {
	c := w.cleaning
	r := recordReader{file: c.segment.file, end: c.segment.end}
	for len(c.rest) > 0 && budget > 0 {
		p, offsets := c.rest[0], c.offsets
		c.rest, c.offsets = c.rest[1:], c.offsets[1:]
		var now place
		if p.name != "" {
			now = w.d.index.documents[p.name]
		} else {
			now, _ = w.d.index.find(p.key)
		}
		if now != p.at {
			continue // deleted or updated in the meantime
		}
		raw, err := r.read(offsets)
		if err != nil {
			w.isBroken(c.segment, err)
			break
		}
		w.dead = append(w.dead, p.at)
		p.at, p.size = w.here(), len(raw)
		w.frame = append(w.frame, raw...)
		w.put(p)
		budget -= len(raw)
	}
	w.entomb()
	if len(c.rest) > 0 || w.cleaning == nil {
		return
	}
	_ = c.sealed.visitDead(func(segment uint32, offsets []uint32) { // readSealed has checked the checksum
		if segment != c.segment.number && w.d.segments[segment] != nil {
			w.tombstones(segment, offsets)
		}
	})
	w.drop(c.segment)
	w.cleaning = nil
	w.droppable = true
}

// maxSpareFiles is the maximum number of files that are kept for the next segments.
const maxSpareFiles = 2

// remove removes the files of the dropped segments, or keeps them for the next segments. The next Open removes files that
// remain.
func (w *writer) remove() {
	if len(w.obsolete) == 0 || w.d.pinned.Load() > 0 {
		return
	}
	w.d.reading.Lock()
	defer w.d.reading.Unlock()
	for _, s := range w.obsolete {
		_ = s.file.Close()
		if name := w.d.segmentName(s.number); s.reusable {
			w.spare = append(w.spare, name)
		} else {
			_ = w.d.fs.Remove(name)
		}
	}
	w.obsolete = nil
	keep := maxSpareFiles
	if !w.d.spaceFor(w.d.segmentBytes) {
		keep = 0
	}
	w.removeSpare(keep)
}

// removeSpare removes spare files, except keep.
func (w *writer) removeSpare(keep int) {
	for n := len(w.spare); n > keep; n-- {
		_ = w.d.fs.Remove(w.spare[n-1])
		w.spare = w.spare[:n-1]
	}
}

// MakeRoom implements [store.Store].
func (d *disk) MakeRoom(ctx context.Context) error {
	done := make(chan struct{})
	err := d.ask(func() error {
		d.writer.room = append(d.writer.room, done)
		return d.writer.rollNow() // also clean the newest segment
	})
	if err != nil {
		return err
	}
	defer func() { _, _ = d.holdReserve() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.failed:
		return d.stopReason()
	case <-d.stopped:
		return d.stopReason()
	}
}

package logstore

import (
	"errors"
	"os"
	"slices"
	"time"
)

// Salvage creates a log from the readable records of a data directory that no process has open, and moves the old log to a
// subdirectory. The function repair, if not nil, receives the readable documents, and returns them together with
// replacements for missing documents. The report contains the expected and the found number of messages of each queue.
//
// If tombstones are unreadable, deleted messages reappear, and the broker redelivers them.
func Salvage(o Options, repair func([]Document) []Document) (report Report, err error) {
	d, whole, err := openOffline(&o)
	if err != nil {
		return report, err
	}
	defer d.lock.Close()
	made := d.logDir + ".salvage"
	if _, err := d.fs.Stat(d.logDir); errors.Is(err, os.ErrNotExist) {
		return report, d.install(made)
	}
	r, err := d.readOffline(whole, true)
	r.close()
	if err != nil {
		return report, err
	}
	report.Damage = r.damage
	counted, err := r.scan(true)
	r.close()
	if err != nil {
		return report, err
	}
	expected := r.queues()
	_, err = r.scan(false)
	defer r.close()
	if err != nil {
		return report, err
	}
	found := r.queues()
	for _, q := range expected {
		if i := slices.IndexFunc(found, func(f Contents) bool { return f.Queue == q.Queue }); i < 0 {
			q.Found = 0
		} else {
			q.Found = found[i].Found
		}
		if !counted {
			q.Expected = -1
		}
		report.Queues = append(report.Queues, q)
	}
	d.index, d.segments = r.index, r.segments
	if err := d.rewrite(o, made, repair, &report); err != nil {
		return report, err
	}
	report.Aside = d.fs.PathJoin(o.Dir, "damaged-"+time.Now().UTC().Format("20060102T150405Z"))
	if err := makeDir(d.fs, report.Aside); err != nil {
		return report, err
	}
	if err := d.fs.Rename(d.logDir, d.fs.PathJoin(report.Aside, logDirName)); err != nil {
		return report, err
	}
	return report, errors.Join(syncDir(d.fs, report.Aside), d.install(made))
}

// install gives a new log its final name, and completes the data directory.
func (d *disk) install(made string) error {
	if err := d.fs.Rename(made, d.logDir); err != nil {
		return err
	}
	if err := syncDir(d.fs, d.dir); err != nil {
		return err
	}
	return writeFormat(d.fs, d.dir)
}

// scan fills the index with the readable records of all segments or, if declared is set, with the records in the summaries
// of segments that have a readable summary. It reports whether all segments have one, except the newest.
func (r *recovery) scan(declared bool) (complete bool, err error) {
	numbers, err := r.list()
	if err != nil {
		return false, err
	}
	numbers = slices.DeleteFunc(numbers, func(n uint32) bool { return slices.Contains(r.obsolete, r.path(n)) })
	complete = !slices.ContainsFunc(r.damage, func(d Damage) bool { // is missing
		return r.fs.PathDir(d.File) == r.dir && !slices.ContainsFunc(numbers, func(n uint32) bool { return r.path(n) == d.File })
	})
	for i, n := range numbers {
		f, s, err := r.openSegment(n)
		if err != nil {
			return false, err
		}
		content, err := readFile(r.fs, r.path(n))
		if err != nil {
			return false, errors.Join(err, f.Close())
		}
		if s == nil {
			complete = complete && i == len(numbers)-1
			s = &sealed{end: int64(len(content))}
		}
		if !declared || s.live == nil {
			all := newSummary()
			visitReadable(content[:s.end], n, all)
			s.dead, s.live = all.dead, all.live
		}
		r.sealed[n] = s
		r.segments[n] = &segment{number: n, file: f, end: s.end, targets: make(map[uint32]bool)}
	}
	r.build(numbers)
	return complete, nil
}

// visitReadable visits the records in valid frames, and the messages and documents in other frames.
func visitReadable(content []byte, segment uint32, v visitor) {
	for at := 0; at < len(content); {
		if payload, size := readFrame(content[at:], segment); size > 0 {
			if at > 0 { // not the list of segments
				_ = visitFrame(payload, at+frameHeader, v)
			}
			at += size
		} else if _, _, size, err := parseRecord(content[at:]); err == nil {
			_ = visitFrame(content[at:at+size], at, v)
			at += size
		} else {
			at++
		}
	}
}

// raw is a message that is already encoded.
type raw []byte

func (r raw) Append(dst []byte) []byte { return append(dst, r...) }

// rewrite writes the records in the index to a new log. The new log is unclean, because it is unknown which messages were
// delivered before the damage.
func (d *disk) rewrite(o Options, made string, repair func([]Document) []Document, report *Report) error {
	for doc, err := range d.Documents("") {
		if err != nil {
			return err
		}
		report.Documents = append(report.Documents, doc)
	}
	if repair != nil {
		report.Documents = repair(report.Documents)
	}
	to := newDisk(&o)
	to.logDir, to.unclean = made, true
	if err := errors.Join(d.fs.RemoveAll(made), makeDir(d.fs, made)); err != nil {
		return err
	}
	first, err := to.createSegment(1)
	if err != nil {
		return err
	}
	to.index = index{queues: make(map[uint64][]*levelIndex), documents: make(map[string]place)}
	to.segments = make(map[uint32]*segment)
	to.writer.use(first)
	if err := to.writer.createSynced(); err != nil {
		return err
	}
	if err := to.writer.recorder.open(to, to.writer.recorder.last, false); err != nil {
		return err
	}
	g := &changeSet{}
	for _, doc := range report.Documents {
		g.others = append(g.others, other{kind: documentPut, name: doc.Name, value: doc.Value})
	}
	for queue, levels := range d.index.queues {
		for _, l := range levels {
			for after, more := uint64(0), true; more; {
				some, err := d.Load(queue, l.level, after, 1024, 4<<20)
				if err != nil {
					return err
				}
				for _, m := range some {
					g.changes = append(g.changes, change{put, Entry{Key: m.Key, State: m.State, Message: raw(m.Message)}})
					after = m.Order
				}
				g.cut()
				if err := to.commit(g); err != nil {
					return err
				}
				*g, more = changeSet{}, len(some) > 0
			}
		}
	}
	g.cut()
	return errors.Join(to.commit(g), to.closeLog(false))
}

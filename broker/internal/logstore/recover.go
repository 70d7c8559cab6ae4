package logstore

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// recovery reads a log. It does not change any file.
type recovery struct {
	fs     vfs.FS
	dir    string // of the segments
	damage []Damage

	segments map[uint32]*segment
	sealed   map[uint32]*sealed
	newest   *tail
	synced   syncedEnd
	index    index
	obsolete []string            // files to remove
	dead     map[uint32][]uint32 // offsets of dead records, by segment
}

// tail is the content of the newest segment.
type tail struct {
	*summary
	number uint32
	first  []uint32 // older segments
	drops  map[uint32]bool
	frames int // without the first
	clean  bool
	end    int64 // of the frames
	lost   int64 // size of the unreadable end
	sealed bool
	path   string
}

func (t *tail) drop(segment uint32) { t.drops[segment] = true }
func (t *tail) closed()             { t.clean = t.frames == 1 }

// isEmpty reports whether the segment has no records that matter.
func (t *tail) isEmpty() bool { return len(t.live) == 0 && len(t.dead) == 0 }

func (r *recovery) damaged(name, problem string, args ...any) {
	r.damage = append(r.damage, Damage{name, fmt.Sprintf(problem, args...)})
}

func (r *recovery) path(number uint32) string {
	return r.fs.PathJoin(r.dir, fmt.Sprintf("%010d%s", number, segmentSuffix))
}

// verifyBytes is the size of the sealed segments whose records Open verifies, newest first. It always verifies the summaries.
// Load verifies each record.
const verifyBytes = 64 << 20

// read reads the log. Damage is not an error.
func (r *recovery) read(everything bool) error {
	numbers, err := r.list()
	if err != nil {
		return err
	}
	if len(numbers) == 0 {
		r.damaged(r.dir, "segments not found")
		return nil
	}
	err = r.readNewest(numbers)
	r.checkSynced()
	if err != nil || r.newest == nil {
		return err
	}
	t := r.newest
	expected := slices.DeleteFunc(slices.Clone(t.first), func(n uint32) bool { return t.drops[n] })
	for _, n := range numbers {
		if n != t.number && !slices.Contains(expected, n) {
			r.obsolete = append(r.obsolete, r.path(n))
		}
	}
	for _, n := range expected {
		if err := r.openSealed(n, slices.Contains(numbers, n)); err != nil {
			return err
		}
	}
	if len(r.damage) > 0 {
		return nil
	}
	verified := int64(0)
	for _, n := range slices.Backward(expected) {
		if s := r.segments[n]; everything || verified < verifyBytes {
			verified += s.end
			if err := r.verify(s); err != nil {
				return err
			}
		}
	}
	r.sealed[t.number] = &sealed{end: t.end, dead: t.summary.dead, live: t.summary.live}
	r.segments[t.number] = &segment{number: t.number, end: t.end, targets: make(map[uint32]bool)}
	r.build(append(expected, t.number))
	return nil
}

// list returns the numbers of the segments in the directory, and clears the recovery.
func (r *recovery) list() (numbers []uint32, err error) {
	r.segments, r.sealed = make(map[uint32]*segment), make(map[uint32]*sealed)
	r.index = index{queues: make(map[uint64][]*levelIndex), documents: make(map[string]place)}
	r.dead = make(map[uint32][]uint32)
	names, err := r.fs.List(r.dir)
	for _, name := range names {
		if text, ok := strings.CutSuffix(name, segmentSuffix); ok {
			if n, err := strconv.ParseUint(text, 10, 32); err == nil {
				numbers = append(numbers, uint32(n))
			}
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

// readNewest reads the newest segment. If a crash interrupted its creation, the previous segment is the newest.
func (r *recovery) readNewest(numbers []uint32) error {
	last := len(numbers) - 1
	t, ok, err := r.readTail(numbers[last])
	if err != nil {
		return err
	}
	if last > 0 && (!ok || t.frames == 0) {
		f, s, err := r.openSegment(numbers[last-1])
		if err != nil {
			return err
		}
		_ = f.Close()
		if s == nil { // the previous segment is not sealed, so the newest was not yet in use
			if t, ok, err = r.readTail(numbers[last-1]); err != nil {
				return err
			}
		}
	}
	if t.sealed && len(r.damage) == 0 { // a segment is sealed when the next one exists
		r.damaged(r.path(t.number+1), "it is missing")
	} else if ok {
		r.newest = t
	} else if len(r.damage) == 0 {
		r.damaged(r.path(numbers[last]), "its first frame is unreadable")
	}
	return nil
}

// openSegment opens a segment. If it is not sealed, or its end is damaged, the summary is nil.
func (r *recovery) openSegment(number uint32) (vfs.File, *sealed, error) {
	f, err := r.fs.Open(r.path(number))
	if err != nil {
		return nil, nil, err
	}
	about, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	s, ok, err := readSealed(f, about.Size(), number)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	if !ok {
		return f, nil, nil
	}
	return f, &s, nil
}

func (r *recovery) openSealed(number uint32, present bool) error {
	if !present {
		r.damaged(r.path(number), "it is missing")
		return nil
	}
	f, s, err := r.openSegment(number)
	if err != nil {
		return err
	}
	if s == nil {
		r.damaged(r.path(number), "its summary is unreadable")
		return f.Close()
	}
	r.sealed[number] = s
	r.segments[number] = &segment{number: number, file: f, end: s.end, targets: make(map[uint32]bool)}
	return nil
}

// verify checks all frames of a sealed segment.
func (r *recovery) verify(s *segment) error {
	content := make([]byte, s.end)
	if _, err := io.ReadFull(io.NewSectionReader(s.file, 0, s.end), content); err != nil {
		return err
	}
	for at := 0; at < len(content); {
		_, size := readFrame(content[at:], s.number)
		if size == 0 {
			r.damaged(r.path(s.number), "checksum does not match at byte %d", at)
			return nil
		}
		at += size
	}
	return nil
}

// readTail reads all frames of a segment. If the first frame is unreadable, ok is false.
func (r *recovery) readTail(number uint32) (t *tail, ok bool, err error) {
	path := r.path(number)
	content, err := readFile(r.fs, path)
	if err != nil {
		return nil, false, err
	}
	t = &tail{summary: newSummary(), number: number, drops: make(map[uint32]bool), path: path}
	f, summary, err := r.openSegment(number)
	if err != nil {
		return nil, false, err
	}
	if err := f.Close(); err != nil {
		return nil, false, err
	}
	if t.sealed = summary != nil; t.sealed {
		return t, false, nil
	}
	first, at := readFrame(content, number)
	if at == 0 {
		return t, false, nil
	}
	list := reader{rest: first}
	for len(list.rest) > 0 {
		t.first = append(t.first, uint32(list.number()))
	}
	if list.err != nil {
		return t, false, nil
	}
	for at < len(content) {
		payload, size := readFrame(content[at:], number)
		if size == 0 {
			if i := nextFrame(content[at+1:], number); i >= 0 {
				r.damaged(path, "bytes %d to %d are unreadable", at, at+1+i)
				return t, false, nil
			}
			break
		}
		t.frames++
		if err := visitFrame(payload, at+frameHeader, t); err != nil {
			r.damaged(path, "invalid record after byte %d", at)
			return t, false, nil
		}
		at += size
	}
	t.end = int64(at)
	if isFrameOf(content[at:], t.number) { // otherwise, the rest is of an earlier segment
		t.lost = int64(len(content) - at)
	}
	t.clean = t.clean && t.lost == 0 && t.frames == 1
	return t, true, nil
}

// build fills the index: first all tombstones, then the messages and documents without a tombstone.
func (r *recovery) build(numbers []uint32) {
	for _, n := range numbers {
		s, from := r.segments[n], r.sealed[n]
		s.deadBytes = int64(len(from.dead))
		err := from.visitDead(func(target uint32, offsets []uint32) {
			if r.segments[target] != nil {
				r.dead[target] = append(r.dead[target], offsets...)
			}
			if target != n {
				s.targets[target] = true
			}
		})
		if err != nil {
			r.damaged(r.path(n), "its summary is invalid")
		}
	}
	for _, n := range numbers {
		s, dead, total := r.segments[n], r.dead[n], 0
		slices.Sort(dead)
		isDead := func(offset uint32) bool {
			total++
			for len(dead) > 0 && dead[0] < offset {
				dead = dead[1:]
			}
			return len(dead) > 0 && dead[0] == offset
		}
		err := r.sealed[n].visitLive(func(k Key, offset uint32, bytes int64, transient bool) {
			// Transient messages were on disk only because memory was low. They do not survive a restart.
			if !isDead(offset) && !transient {
				if _, replaced := r.index.put(k, place{n, offset}, bytes); replaced {
					r.damaged(r.path(n), "message %v exists twice", k)
				}
				s.live++
			}
		}, func(name string, offset uint32) {
			if !isDead(offset) {
				r.index.documents[name] = place{n, offset}
				s.live++
			}
		})
		if err != nil {
			r.damaged(r.path(n), "its summary is invalid")
		}
		s.liveBytes = (s.end - s.deadBytes) * int64(s.live) / int64(max(1, total))
		delete(r.dead, n)
		r.sealed[n].dead, r.sealed[n].live = nil, nil
	}
}

func (r *recovery) close() {
	for s := range maps.Values(r.segments) {
		if s.file != nil {
			_ = s.file.Close()
		}
	}
}

// Damage describes a file that is missing or unreadable, or whose content differs from the written data.
type Damage struct {
	File    string
	Problem string
}

func (d Damage) String() string { return d.File + ": " + d.Problem }

// advice lists the remedies for damage.
const advice = "restore a backup, or run `reprise broker check --data DIR --salvage` to keep the readable messages, " +
	"or move the directory away to start empty"

// damaged returns an ErrDamaged that names the first damaged files.
func damaged(all []Damage) error {
	const most = 5
	var text []string
	for _, d := range all[:min(len(all), most)] {
		text = append(text, d.String())
	}
	if len(all) > most {
		text = append(text, fmt.Sprintf("and %d more", len(all)-most))
	}
	return fmt.Errorf("%w: %s: %s", ErrDamaged, strings.Join(text, "; "), advice)
}

func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content := make([]byte, about.Size())
	_, err = io.ReadFull(f, content)
	return content, err
}

// describe returns the message of err. For a missing file, the message does not repeat the file name.
func describe(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "it is missing"
	}
	return err.Error()
}

package queue

import (
	"errors"
	"fmt"
	"sort"
	"time"
)

// A queue reads its messages back a chunk at a time, a small one first, larger ones while they are asked for.
const (
	chunkMin   = 16
	chunkMax   = 1024
	chunkBytes = 256 << 10
)

// maxDead is how many dead letters are waiting to be sent when no more messages are read that may only add to them.
const maxDead = 4 * lettersAtATime

// retryLoad is how long it takes until what could not be read is tried again.
const retryLoad = 5 * time.Second

// retryCrowded is how long it takes until a queue looks again whether there is memory. It is told of what it gets back
// itself, so this is for what others give back.
const retryCrowded = time.Second

// errMissing tells of a mistake, of ours or of whoever changed the files. To wait for what is not there would hold up those
// behind it.
var errMissing = errors.New("messages were counted that are not there")

// fetch has messages read that are soon to be at the head.
func (q *Queue) fetch() {
	if q.ready.onDisk == 0 || q.deleted || q.closed || q.manyDead() {
		return
	}
	for p := range q.ready.levels {
		l := &q.ready.levels[p]
		if !l.runsShort() {
			continue
		}
		if q.crowded() {
			return
		}
		l.disk.loading = true
		q.config.Go(func() { q.load(uint8(p)) })
	}
}

// runsShort reports whether it is time to read more.
func (l *level) runsShort() bool {
	return l.disk.n > 0 && !l.disk.loading && l.fresh.len() <= l.disk.chunk/2 && l.fresh.size < chunkBytes
}

// manyDead reports whether there are so many dead letters that more messages, which may have expired as well, are better
// left where they are. Those that nobody takes may be there for ever, and must not keep a consumer waiting for what is
// behind them.
func (q *Queue) manyDead() bool {
	n := len(q.dead.next)
	if q.getting == 0 && len(q.consumers.line) == 0 {
		n += len(q.dead.stranded)
	}
	return n > maxDead
}

// crowded reports whether memory is short and this queue has its share of it with its consumers: one without prefetch
// would have all that is on disk. A queue that has little goes on, since it may not be to blame; so does one that somebody
// is waiting for by basic.get, who takes one message at a time. What consumers give back stays in memory, so that a
// queue may have no more than what it could deliver.
func (q *Queue) crowded() bool {
	if q.unacked <= roomFor && q.held <= roomBytes || q.getting > 0 || !q.config.Meter.exceeded() {
		return false
	}
	if q.recheck == nil {
		q.recheck = time.AfterFunc(retryCrowded, func() {
			q.mu.Lock()
			defer q.unlock()
			q.recheck = nil
		})
	}
	return true
}

// load reads a chunk.
func (q *Queue) load(p uint8) {
	q.mu.Lock()
	l := q.ready.level(p)
	disk := &l.disk
	switch {
	case disk.chunk == 0:
		disk.chunk = chunkMin
	case disk.full:
		disk.chunk = min(2*disk.chunk, chunkMax)
	}
	q.loads++
	disk.load = q.loads
	was, before := *disk, q.order+1
	if it := l.tail.head(); it != nil {
		before = it.order
	}
	q.mu.Unlock()

	asked := min(was.chunk, was.n)
	items, err := q.read(p, was.after, before, asked)

	q.mu.Lock()
	defer q.unlock()
	defer q.arrived.Broadcast()
	disk = &q.ready.level(p).disk
	switch {
	case q.deleted || q.closed:
	case disk.load != was.load: // what was read has been purged
	case errors.Is(err, errMissing):
		disk.loading, disk.err = false, nil
		q.config.Trouble(fmt.Errorf("%w: %d messages", err, was.n))
		q.config.Store.DeleteRange(q.config.ID, p, was.after, was.after+1, was.n, was.bytes)
		q.ready.lose(p, was)
		q.loaded(p, nil)
	case err != nil:
		// It may pass, and others may still be readable: nothing is given up.
		disk.err = err
		q.config.Trouble(err)
		time.AfterFunc(retryLoad, func() { q.loadAgain(p, was.load) })
	default:
		disk.loading, disk.err = false, nil
		if disk.full = len(items) == asked; !disk.full {
			disk.chunk = len(items)
		}
		q.loaded(p, items)
	}
}

func (q *Queue) loadAgain(p uint8, load uint64) {
	q.mu.Lock()
	defer q.unlock()
	if disk := &q.ready.level(p).disk; disk.load == load {
		disk.loading = false
	}
}

// read reads messages whose order is between two others.
func (q *Queue) read(p uint8, after, before uint64, n int) ([]*Item, error) {
	if n == 0 {
		return nil, nil
	}
	read, err := q.config.Store.Load(q.config.ID, p, after, n, chunkBytes)
	if err != nil {
		return nil, err
	}
	read = read[:sort.Search(len(read), func(i int) bool { return read[i].Order >= before })]
	if len(read) == 0 {
		return nil, errMissing
	}
	items := make([]*Item, len(read))
	for i, r := range read {
		if items[i], err = q.restored(r); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// loaded takes messages back into memory.
func (q *Queue) loaded(p uint8, items []*Item) {
	l := q.ready.level(p)
	for _, it := range items {
		q.ready.load(l, it)
		q.config.Meter.Add(it.Message.Size())
	}
	l.catchUp()
	q.dispatch()
	q.trim()
}

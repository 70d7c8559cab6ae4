package queue

import (
	"errors"
	"fmt"
	"sort"
	"time"
)

// A queue loads its messages in chunks. The first chunk is small. The chunks grow while each load returns a full chunk.
const (
	chunkMin   = 16
	chunkMax   = 1024
	chunkBytes = 256 << 10
)

// maxDead is the number of unsent dead letters above which the queue stops loading messages. The loaded messages could
// also expire and become dead letters.
const maxDead = 4 * deadLetterBatch

// retryLoad is the delay before the queue retries a failed load.
const retryLoad = 5 * time.Second

// memoryCheckInterval is the interval at which a queue that waits for memory checks whether memory is available. It
// matters only for memory that other queues release, because a queue immediately notices when it releases memory
// itself.
const memoryCheckInterval = time.Second

// errMissing means that the broker has a defect, or that another program has changed the files. The queue skips the
// missing messages, because waiting for them would block the messages behind them.
var errMissing = errors.New("messages not found in the store")

// fetch starts to load the messages that will soon reach the head.
func (q *Queue) fetch() {
	if q.ready.onDisk == 0 || q.deleted || q.closed || q.manyDead() {
		return
	}
	for p := range q.ready.levels {
		l := &q.ready.levels[p]
		if !l.needsChunk() {
			continue
		}
		if q.exceedsMemoryShare() {
			return
		}
		l.disk.loading = true
		q.loading.Set(len(q.consumers.available) > 0)
		q.config.Go(func() { q.load(uint8(p)) })
	}
}

// needsChunk reports whether the queue must load the next chunk of the level.
func (l *level) needsChunk() bool {
	return l.disk.n > 0 && !l.disk.loading && l.fresh.len() <= l.disk.chunk/2 && l.fresh.size < chunkBytes
}

// Loading returns nil, or a channel that is closed when the queue has loaded messages for which consumers wait. Publishers of
// transient messages then wait, because each further message would be written to the disk and read again. Otherwise, they
// would take the processor from the consumers, and the consumers might never catch up.
func (q *Queue) Loading() <-chan struct{} { return q.loading.Raised() }

// manyDead reports whether the queue has too many dead letters to load more messages, which could become dead letters,
// too. Stranded letters may stay indefinitely and must not block a consumer, so they count only if neither a consumer
// nor a basic.get waits for messages.
func (q *Queue) manyDead() bool {
	n := len(q.dead.next)
	if q.getting == 0 && len(q.consumers.available) == 0 {
		n += len(q.dead.stranded)
	}
	return n > maxDead
}

// exceedsMemoryShare reports whether memory is low and the queue has more unacked messages than its share. In this
// case, the queue must not load further messages. Without this limit, a consumer without a prefetch would make the
// queue load all messages from the disk. A queue with few unacked messages continues, because it may not be the cause
// of the shortage. A queue with a waiting basic.get also continues, because basic.get takes only one message.
func (q *Queue) exceedsMemoryShare() bool {
	if q.unacked <= roomFor && q.held <= roomBytes || q.getting > 0 || !q.config.Meter.exceeded() {
		return false
	}
	if q.recheck == nil {
		q.recheck = time.AfterFunc(memoryCheckInterval, func() {
			q.mu.Lock()
			defer q.unlock()
			q.recheck = nil
		})
	}
	return true
}

// load loads the next chunk of messages with the priority p.
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
	q.loading.Set(false)
	disk = &q.ready.level(p).disk
	switch {
	case q.deleted || q.closed:
	case disk.load != was.load: // the queue was purged during the load
	case errors.Is(err, errMissing):
		disk.loading, disk.err = false, nil
		q.config.Trouble(fmt.Errorf("%w: %d messages", err, was.n))
		q.config.Store.DeleteRange(q.config.ID, p, was.after, was.after+1, was.n, was.bytes)
		q.ready.lose(p, was)
		q.loaded(p, nil)
	case err != nil:
		// The error may be temporary, and other messages may be readable, so the queue keeps all messages.
		disk.err = err
		q.config.Trouble(err)
		if q.reloads == nil {
			q.reloads = map[uint8]*time.Timer{}
		}
		if earlier := q.reloads[p]; earlier != nil {
			earlier.Stop() // obsolete, because the queue was purged
		}
		q.reloads[p] = time.AfterFunc(retryLoad, func() { q.loadAgain(p, was.load) })
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
	if q.deleted || q.closed {
		return
	}
	if disk := &q.ready.level(p).disk; disk.load == load {
		disk.loading = false
	}
}

// read reads up to n messages whose order is greater than after and less than before.
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

// loaded adds loaded messages to the ready messages in memory, and then delivers messages.
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

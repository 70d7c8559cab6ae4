package reprise

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// window knows how many settlements of a channel RabbitMQ may not have taken yet.
//
// RabbitMQ's channel passes a settlement on to a quorum queue at once where the queue
// has no more than 32 of them to write down, all it was sent before. What comes beyond
// those it holds back; it goes on answering requests meanwhile; and it forgets what it
// holds back when it ends (rabbit_fifo_client.erl, SOFT_LIMIT, 3.10 to 4.3). So the
// answer to a request proves that an ack before it is taken if, and only if, that ack
// was within the 32. AMQP does not tell which were taken. There are three ways to know:
//
//   - A queue lets a consumer have as many unsettled messages as its prefetch is.
//     With each delivery beyond that it has taken one settlement more, the oldest first.
//   - It answers a basic.consume or a basic.cancel when it has done what came before.
//   - It is taken for granted after takenWithin.
//
// With a prefetch of 32 there are never more than 32, and nothing is taken for granted.
//
// A nil window is that of a broker which takes settlements as they come. All methods
// may be called from any goroutine.
type window struct {
	latest atomic.Uint64 // the last tag that was delivered

	mu       sync.Mutex
	prefetch uint64
	base     uint64 // the last tag that was delivered before the consumer
	start    uint64 // settled was this then
	settled  uint64 // messages that were
	frames   []settledFrame
	open     int      // commands in frames
	bases    []uint64 // of this consumer, and of the last few before it
}

// settledFrame is an ack, a nack or a reject that may not be taken yet.
type settledFrame struct {
	settled  uint64 // messages, with those of this frame
	commands int    // which RabbitMQ makes of it: one for each consumer
	at       time.Time
}

const (
	// windowSize is how many commands RabbitMQ's channel passes on unanswered.
	windowSize = 32

	// windowReserve is how many of them are left to acks that somebody waits for.
	windowReserve = 16

	// takenWithin is how long RabbitMQ has to take an ack. It mostly needs some
	// milliseconds, and more than 30 where its disk is busy.
	takenWithin = time.Second
)

// newWindow returns the window of a channel, from the properties of its broker.
func newWindow(properties amqp.Table) *window {
	// Brokers that only do as RabbitMQ does call themselves so, too.
	if platform, _ := properties["platform"].(string); !strings.HasPrefix(platform, "Erlang") {
		return nil
	}
	return &window{}
}

// delivered tells of a delivery; tags come in order.
func (w *window) delivered(tag uint64) {
	if w != nil {
		w.latest.Store(tag)
	}
}

// wrote tells of a frame that settled messages, of tags from first to last, and
// returns how many commands it makes.
func (w *window) wrote(first, last, messages uint64) (commands int) {
	if w == nil {
		return 1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	commands = 1
	for _, base := range w.bases {
		if first <= base && base < last {
			commands++
		}
	}
	w.settled += messages
	w.frames = append(w.frames, settledFrame{settled: w.settled, commands: commands, at: time.Now()})
	w.open += commands
	w.proven()
	return commands
}

// room is how many more commands RabbitMQ passes on; less than 0: it may hold some back.
func (w *window) room() int {
	if w == nil {
		return math.MaxInt
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proven()
	return windowSize - w.open
}

// proven lets go of frames that are known to be taken.
func (w *window) proven() {
	taken := w.start + max(w.latest.Load(), w.base+w.prefetch) - w.base - w.prefetch
	granted := time.Now().Add(-takenWithin)
	for len(w.frames) > 0 && (w.frames[0].settled <= taken && taken > w.start || !w.frames[0].at.After(granted)) {
		w.drop()
	}
}

func (w *window) drop() {
	w.open -= w.frames[0].commands
	w.frames = w.frames[1:]
}

// asked is called before a basic.consume or a basic.cancel; what it returns is for
// answered, which is called after.
func (w *window) asked() uint64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settled
}

// answered says that the queue has answered: it has done what was settled until it was
// asked, unless some of that is held back.
func (w *window) answered(settled uint64) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proven(); w.open > windowSize {
		return
	}
	for len(w.frames) > 0 && w.frames[0].settled <= settled {
		w.drop()
	}
}

// consumes says that a consumer has begun, when settled was so: see asked.
func (w *window) consumes(settled uint64, prefetch int) {
	if w == nil {
		return
	}
	w.answered(settled)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start, w.base, w.prefetch = settled, w.latest.Load(), uint64(prefetch)
	w.bases = append(w.bases[max(0, len(w.bases)-3):], w.base)
}

// wait waits until nothing can be held back any more, or ctx ends.
func (w *window) wait(ctx context.Context) {
	for w.room() < 0 && sleep(ctx, takenWithin/100) == nil {
	}
}

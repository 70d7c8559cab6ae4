package preset

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// Names of the cover art design on the wire.
const (
	CoverArtExchange       = "cover-art-archive"
	CoverArtRetryExchange  = "cover-art-archive.retry"
	CoverArtFailedExchange = "cover-art-archive.failed"

	CoverArtIndexQueue  = "cover-art-archive.index"
	CoverArtDeleteQueue = "cover-art-archive.delete"
	CoverArtMoveQueue   = "cover-art-archive.move"
	CoverArtRetryQueue  = "cover-art-archive.retry"
	CoverArtFailedQueue = "cover-art-archive.failed"

	CoverArtRetriesHeader    = "mb-retries"
	CoverArtExceptionsHeader = "mb-exceptions"
)

// Numbers of the cover art design.
const (
	CoverArtRetryDelay = 4 * time.Hour
	CoverArtRetries    = 4
)

// CoverArt is the queue design of the MusicBrainz cover art indexer.
//
//	cover-art-archive (direct) ─ index ──► cover-art-archive.index
//	      ▲                    ─ delete ─► cover-art-archive.delete
//	      │                    ─ move ───► cover-art-archive.move
//	      │
//	      └─ expires, 4 h ─ cover-art-archive.retry (queue) ◄─ cover-art-archive.retry (fanout)
//	                        cover-art-archive.failed (queue) ◄─ cover-art-archive.failed (fanout)
//
// Header mb-retries holds the retries that remain, 4 when absent: above 0 a
// failed message goes to the retry exchange with one less, else to the failed
// exchange. It is written as a signed 32-bit integer, and read as an integer of
// any type or as text: the indexer that MusicBrainz ran, a program in Perl, sends
// text. Header mb-exceptions is the array of error texts so far, strings. Both
// exchanges are fanout, because fanout keeps the routing key, and with it the
// expired message finds its queue again.
//
// Workers of this design and the program in Perl share queues, and retry each
// other's messages. Two things of that program are not the same here: it parks a
// message with mb-retries one lower still, -1, while here the number stays as it
// was; and all other headers and properties, which it drops at the first retry,
// are kept.
type CoverArt struct {
	RetryDelay time.Duration // x-message-ttl of the retry queue, whole milliseconds; default 4 h
	Retries    int           // retries of a message without mb-retries; default 4

	// QueueType is the x-queue-type of every queue; "" leaves the argument out,
	// as deployed. With "quorum" every queue also gets an x-delivery-limit of
	// 2147483647: RabbitMQ drops a message that exceeds the limit where, as in
	// this design, there is nowhere to dead-letter it to, and the default of
	// RabbitMQ 4 is 20. A message that kills its worker each time is delivered
	// again without end.
	QueueType string
}

func (c CoverArt) withDefaults() CoverArt {
	c.RetryDelay = cmp.Or(c.RetryDelay, CoverArtRetryDelay)
	c.Retries = cmp.Or(c.Retries, CoverArtRetries)
	return c
}

// Validate reports numbers the design cannot express and what to write instead.
func (c CoverArt) Validate() error {
	errs := []error{
		validateDelay("CoverArt.RetryDelay", c.RetryDelay, CoverArtRetryDelay),
		validateQueueType("CoverArt.QueueType", c.QueueType, "for what the broker makes it"),
	}
	if c.Retries < 0 || c.Retries > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("preset: CoverArt.Retries %d: use 1 to %d, or 0 for %d", c.Retries, math.MaxInt32, CoverArtRetries))
	}
	return errors.Join(errs...)
}

func (c CoverArt) validateQueue(queue string) error {
	return oneOf("CoverArt", queue, CoverArtIndexQueue, CoverArtDeleteQueue, CoverArtMoveQueue)
}

// Topology returns all exchanges, queues and bindings of the design.
func (c CoverArt) Topology() topology.Topology {
	c = c.withDefaults()
	queue := func(name string, args topology.Table) topology.Queue {
		if c.QueueType != "" {
			args = args.Clone()
			args["x-queue-type"] = c.QueueType
			if c.QueueType == "quorum" {
				args["x-delivery-limit"] = unlimited
			}
		}
		return topology.Queue{Name: name, Args: args}
	}
	return topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: CoverArtExchange, Kind: topology.Direct},
			{Name: CoverArtRetryExchange, Kind: topology.Fanout},
			{Name: CoverArtFailedExchange, Kind: topology.Fanout},
		},
		Queues: []topology.Queue{
			queue(CoverArtIndexQueue, nil),
			queue(CoverArtDeleteQueue, nil),
			queue(CoverArtMoveQueue, nil),
			queue(CoverArtRetryQueue, topology.Table{
				"x-message-ttl":          c.RetryDelay.Milliseconds(),
				"x-dead-letter-exchange": CoverArtExchange,
			}),
			queue(CoverArtFailedQueue, nil),
		},
		Bindings: []topology.Binding{
			{Exchange: CoverArtExchange, Queue: CoverArtIndexQueue, RoutingKey: "index"},
			{Exchange: CoverArtExchange, Queue: CoverArtDeleteQueue, RoutingKey: "delete"},
			{Exchange: CoverArtExchange, Queue: CoverArtMoveQueue, RoutingKey: "move"},
			{Exchange: CoverArtRetryExchange, Queue: CoverArtRetryQueue},
			{Exchange: CoverArtFailedExchange, Queue: CoverArtFailedQueue},
		},
	}
}

// Strategy returns how messages of the design are retried and parked, for a
// worker on any of its three work queues. The delay is the retry queue's, the
// budget is mb-retries: of a worker's Policy only a Rule counts that allows fewer
// attempts. (GiveUpAfter cannot be kept, and NewWorker refuses it.)
func (c CoverArt) Strategy() topology.Strategy {
	given := c
	c = c.withDefaults()
	return topology.Strategy{
		Route: designed{topology.WaitQueue{
			WorkExchange:   CoverArtExchange,
			WaitExchange:   CoverArtRetryExchange,
			FailedExchange: CoverArtFailedExchange,
			Delay:          c.RetryDelay,
			Infrastructure: c.Topology(),
		}, given},
		Marks: topology.CountDown{
			Header:  CoverArtRetriesHeader,
			Errors:  CoverArtExceptionsHeader,
			Default: c.Retries,
		},
	}
}

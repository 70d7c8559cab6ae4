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

// Delay and number of retries of the cover art design.
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
// The header mb-retries contains the number of remaining retries. Without the header, the number is 4. If the number is
// above 0, a failed message goes to the retry exchange with the number decremented. Otherwise it goes to the failed
// exchange. The worker writes the number as a signed 32-bit integer, and reads an integer of any type or a string,
// because the indexer of MusicBrainz, a program in Perl, sends a string. The header mb-exceptions is an array of the
// error texts so far, as strings. A retry does not change the routing key, so the key leads the expired message to its
// queue.
//
// Workers with this preset and the program in Perl can share queues, and each retries the messages of the others. The
// Perl program differs in two respects. It parks a message with mb-retries reduced to -1, whereas a worker does not
// change the number. At the first retry, it drops all other headers and properties, whereas a worker keeps them.
type CoverArt struct {
	RetryDelay time.Duration // x-message-ttl of the retry queue, whole milliseconds; default 4 h
	Retries    int           // number of retries of a message without mb-retries; default 4

	// QueueType is the x-queue-type of every queue; "" omits the argument, as deployed. With "quorum", every queue also
	// gets an x-delivery-limit of 2147483647. The default of RabbitMQ 4 is 20, and a queue without a dead-letter exchange,
	// such as the work queues of this design, drops a message that exceeds the limit. With the higher limit, the broker
	// redelivers a message practically without limit, even if the message terminates its worker each time.
	QueueType string
}

func (c CoverArt) withDefaults() CoverArt {
	c.RetryDelay = cmp.Or(c.RetryDelay, CoverArtRetryDelay)
	c.Retries = cmp.Or(c.Retries, CoverArtRetries)
	return c
}

// Validate reports settings that the design does not support, and explains how to fix them.
func (c CoverArt) Validate() error {
	errs := []error{
		validateDelay("CoverArt.RetryDelay", c.RetryDelay, CoverArtRetryDelay),
		validateQueueType("CoverArt.QueueType", c.QueueType, "the default of the broker"),
	}
	if c.Retries < 0 || c.Retries > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("preset: CoverArt.Retries must be between 0 and %d: got %d (0 means %d)", math.MaxInt32, c.Retries, CoverArtRetries))
	}
	return errors.Join(errs...)
}

func (c CoverArt) validateQueue(queue string) error {
	return validateWorkQueue("CoverArt", queue, CoverArtIndexQueue, CoverArtDeleteQueue, CoverArtMoveQueue)
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

// Strategy returns the retry strategy of the design, for a worker on any of the three work queues. The retry queue
// determines the delay, and mb-retries the number of retries. In the Policy of the worker, only Rules that park a message or
// permit fewer attempts have an effect. (NewWorker refuses GiveUpAfter, because the design does not record the time of the
// first failure.)
func (c CoverArt) Strategy() topology.Strategy {
	given := c
	c = c.withDefaults()
	return topology.Strategy{
		Route: designRoute{topology.WaitQueue{
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

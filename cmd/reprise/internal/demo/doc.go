// Package demo runs the cover art indexer of MusicBrainz for real, in one
// process, and shows what becomes of its messages.
//
//	            publishes events                    ┌─ fails now and then (503 SlowDown)
//	producer ──► broker ──► index, delete, move ──► S3 store
//	                ▲            │     └──────────► web service
//	                └── .retry ◄─┴─► .failed
//
// Real are: the broker's protocol (embedded, over an in-memory connection, or
// any RabbitMQ), the topology with its names and headers, the workers, the
// code of examples/coverart, S3 over HTTP with a memory store behind it, and
// the releases. Made up are: the events, the store's moods, the images, and the
// retry delay, which is seconds in place of hours.
//
// It ends with a ledger. Three parties are asked, none of which knows of the
// others' figures:
//
//	in        the producer: messages the broker has confirmed
//	done      the handlers: messages one of them returned nil for;
//	          the workers: those of a burst that another one stood for
//	failed,   the broker: messages that are in its queues when the workers
//	waiting   have stopped
//
// in = done + failed + waiting, message by message, or something was lost.
//
// The embedded broker is the caller's to start: the worker library and the
// broker do not know each other, and this package knows the first only.
package demo

// Package load publishes to a broker and consumes from it over AMQP 0-9-1, at full speed or at a fixed rate, and verifies that each
// message arrives once, in order and unchanged.
//
//	result, err := load.Run(ctx, load.Options{URL: url, Count: 1_000_000, Ack: load.AckAuto}, nil)
//
// The generator uses only the wire codec, so that a measurement shows the broker and not the client. A publisher encodes its
// message once per queue, and then only writes a new stamp into a copy. A consumer reads the fields that it needs without decoding
// the frames. Neither allocates memory per message.
//
// Each message contains its time of publication, its publisher and a sequence number per publisher and queue. A lost, duplicated,
// reordered or foreign message fails the run.
//
// A run has these steps:
//
//  1. Delete the queues and declare them again.
//  2. Start the consumers.
//  3. If a warm-up is configured, publish for its duration and drain the queues.
//  4. Measure until the last message is delivered and acked.
//  5. Check that the queues are empty, and delete them.
package load

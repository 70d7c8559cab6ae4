// Package load publishes messages to a broker over AMQP 0-9-1, at full speed or at a fixed rate, and consumes them. It
// verifies that each message arrives exactly once, in order and with the right size.
//
//	result, err := load.Run(ctx, load.Options{URL: url, Count: 1_000_000, Ack: load.AckAuto}, nil)
//
// The load generator uses only the wire codec, so that it measures the broker and not a client library. A publisher
// encodes one message per queue in advance. To publish, it copies this message and writes a new stamp into the copy. A
// consumer reads the fields that it needs without decoding the frames. Neither allocates memory per message.
//
// Each message contains its time of publication, its publisher and a sequence number per publisher and queue. The run
// fails if a message is lost, duplicated, redelivered or reordered, or does not belong to the run.
//
// A run has these steps:
//
//  1. Delete the queues and declare them again.
//  2. Start the consumers.
//  3. If a warm-up is configured, publish during the warm-up and then drain the queues.
//  4. Measure until the last message is confirmed and delivered.
//  5. If there are consumers, check that the queues are empty. Delete the queues, unless Options.Keep is set.
package load

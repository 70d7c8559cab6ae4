// Package load drives a broker over AMQP 0-9-1, as hard or as evenly as it is
// told to, and checks that what comes out is what went in.
//
//	result, err := load.Run(ctx, load.Options{URL: url, Count: 1_000_000, Ack: load.AckAuto}, nil)
//
// It stands on the wire codec alone, so that the generator is not what is
// measured: what is published is encoded once and only stamped for each message,
// what is received is not decoded but looked at, and neither allocates.
//
// Every message carries when it was published, by whom, and its number among
// those of that publisher in that queue. A message that is lost, or comes twice,
// or out of order, or from elsewhere, is an error of the run.
//
// A run goes: queues are declared anew; consumers start; with a warm-up,
// publishers run for that long and everything is drained; then comes the part
// that is measured, until the last message has been delivered and acked; then
// the queues are looked at once more, which must be empty, and deleted.
package load

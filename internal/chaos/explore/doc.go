// Package explore determines the outcome of a message for a failure at each moment of its life.
//
// A moment is the time between two frames. The life of a message is a sequence of frames, over both connections of its
// worker and in both directions. Each frame is a consequence of the earlier frames:
//
//	consuming ◄ basic.deliver, header, body ─► the handler fails
//	publishing ► basic.publish, header, body
//	publishing ◄ basic.ack, the confirm
//	consuming ► basic.ack
//
// The package records this sequence, the script, once (see testkit.Tap). Then it repeats the life once for each frame. In each
// repetition, the failure occurs immediately before one of the frames, after all earlier frames have arrived and taken effect. The
// clients reconnect and continue until no attempt is in progress. Then the package counts the copies of the message.
//
//	Way        how the worker settles a failed message: requeue, publish then ack …
//	Life       the course of the message: it is retried, parked, done
//	Breakage   the failure: of a connection, of the worker's process
//	Outcome    the final state: Intact, Lost, Duplicated
//
// # Copies
//
// A message is lost if, in the end, it is neither done nor parked nor in another queue. A message is duplicated if two
// messages with its ID can be in queues at the same time and each of them is finally settled. A redelivery of an unsettled
// message is not a copy, however often the handler receives the message.
//
// So that the copies can be counted exactly, a retried message and its copies are finally parked, not acknowledged. The
// frames determine the number of copies: one, plus one for each published copy that was not returned, minus one for
// each acknowledgement. The life is complete when the failed queue has this number of messages and no attempt is in
// progress.
package explore

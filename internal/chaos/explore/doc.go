// Package explore finds out what becomes of a message when something breaks, by
// having it break at every moment there is.
//
// A moment lies between two frames. The life of a message is a sequence of them,
// over both connections of its worker and in both directions, in which each is
// caused by those before it:
//
//	consuming ◄ basic.deliver, header, body ─► the handler fails
//	publishing ► basic.publish, header, body
//	publishing ◄ basic.ack, the confirm
//	consuming ► basic.ack
//
// That sequence, the script, is recorded once (see testkit.Tap). Then the life is
// lived again, as many times as there are frames: each time something breaks when
// one of them is about to cross, all before it having arrived and done what they
// do. Everything reconnects and goes on until nothing is under way any more, and
// the copies of the message are counted.
//
//	Way        how a failed message is settled: requeue, publish then ack …
//	Life       what happens to it: it is retried, parked, done
//	Breakage   what breaks: a connection, the worker's process
//	Outcome    what has become of it: Intact, Lost, Duplicated
//
// # Copies
//
// A message is lost if it is neither done nor parked in the end, nor anywhere
// else. It is duplicated if there are two with its id, of which each goes on by
// itself: they can be in queues at the same time, and in the end are settled for
// good once each. A message that is delivered again since nobody has settled it is
// the same one, and not a copy, however often its handler sees it.
//
// For that to be counted, and not estimated, nothing ends in an acknowledgement:
// what is retried is parked after that, and so are its copies. How many copies
// exist at all follows from what has crossed: one, one more for each that was
// published, one less for each that was acknowledged. When as many are in the
// failed queue, and no attempt is under way, it is over.
package explore

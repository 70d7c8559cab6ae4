// Package workretry is the exchange pair WorkExchange and RetryExchange at work,
// and a comparison: the same flaky jobs, retried in four ways, while processes
// end and connections break in the middle of it.
//
//	WorkExchange ─────────► WorkQueue ─► handler ─► nil ──────────────► acknowledged
//	     ▲                      │           └─────► error, none left ─► copy to WorkQueue.failed
//	     │                      └ rejected ─► RetryExchange
//	     └─ expires, 5 min ─ RetryQueue ◄────────┘
//
// A job is a body that says how often it fails, so that a program in any language
// can publish one, or be given one:
//
//	{"job": 7, "fails": 2}     fails in its first two attempts, succeeds in the third
//	{"job": 8, "fails": -1}    never succeeds
//
// Any other body succeeds at once.
//
// # The four ways
//
//	requeue                 basic.reject with requeue=true
//	publish, then ack       a copy to a wait queue, confirmed; then basic.ack
//	ack, then publish       basic.ack; then a copy to a wait queue
//	dead-letter exchange    basic.reject with requeue=false: the pair above
//
// [Compare] has each of them do the same jobs, one after another. While some of
// them are retried, or parked, one of these things happens, exactly there:
//
//	the process ends before anything is settled
//	the process ends between the two steps
//	the confirm of the copy is lost, with the connection
//	the consuming connection is lost
//
// For that, the network of each program is a wrapped net.Conn (reprise.Config
// has a field Dial) that knows AMQP's frames, and cuts when the frame in question
// is about to cross. All before it has arrived, nothing after it does, and so it
// comes out the same every time.
//
// A job is lost if it is neither done nor parked in the end, and duplicated if
// it is so twice: two messages with its id were there, and went their own ways.
//
//	sent + duplicated = done + parked + lost
//
// What happens at every other frame is in docs/guarantees.md.
package workretry

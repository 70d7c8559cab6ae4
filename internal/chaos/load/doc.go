// Package load uses a broker that is killed repeatedly, and compares its outgoing messages with its incoming messages.
//
//	publishers ─► work, classic ─► consumers ─► acked, or rejected ─► dead ─► acked
//	           ├► wait, qwait ──── expired ─────────────────────────► done ─► acked
//	           └► short ────────── dropped ───────────────────────────┘
//
// A test starts a broker, begins a [Use], kills the broker and starts it again on the same data. At the end all messages are
// consumed, and then:
//
//   - every message that was confirmed has arrived in its destination;
//   - no duplicate arrives without the flag redelivered;
//   - the messages of each queue have come in the order in which they were published, from one start to the next kill.
//
// No message is published twice, so a duplicate comes from the broker.
package load

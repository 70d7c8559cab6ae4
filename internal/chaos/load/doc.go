// Package load publishes to a broker that is killed repeatedly, and compares the delivered messages with the confirmed
// messages. A life of the broker is the time from its start to the next kill.
//
//	publishers ─► work, classic ─► consumers ─► acked, or rejected ─► dead ─► acked
//	           ├► wait, qwait ──── expired ─────────────────────────► done ─► acked
//	           ├► short ────────── dropped ───────────────────────────┤
//	           └► later, an exchange ── delayed ──────────────────────┘
//
// A test starts a broker, begins a [Use], kills the broker and starts it again with the same data. At the end it consumes
// all messages, and verifies the following:
//
//   - Each confirmed message has arrived in its last queue.
//   - Each duplicate has the flag redelivered.
//   - In each life, the messages of each queue arrive in the order of publication.
//
// The test does not publish a message twice, so each duplicate is a redelivery by the broker.
package load

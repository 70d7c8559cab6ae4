// Package chaos ends brokers without warning, over and over, while they are used, and holds what comes out of them against
// what went in.
//
//	publishers ─► work, classic ─► consumers ─► acked, or rejected ─► dead ─► acked
//	           ├► wait, qwait ──── expired ─────────────────────────► done ─► acked
//	           └► short ────────── dropped ───────────────────────────┘
//
// One test kills the process (SIGKILL), another cuts the power: a file system in memory, where what was not synced is lost
// in part. After each end the broker begins anew with what there is on its disk. At the end all is consumed, and then
//
//   - every message that was confirmed has arrived where it belongs;
//   - none has arrived there twice, unless it said that it might have (redelivered);
//   - those of each queue have come in the order in which they were published, from one start to the next end.
//
// No message is published twice, so that whatever comes twice comes from the broker.
package chaos

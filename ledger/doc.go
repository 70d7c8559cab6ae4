// Package ledger proves that no message was lost, or says of which queue and when.
//
// Two sides keep count, and neither knows of the other: the broker knows what was published to a
// work queue and how many messages its queues have; workers know what they have done. The archive
// knows the failed messages. A Ledger compares them:
//
//	broker ── management API ──┐
//	                           ├─► Ledger.Take, every 15 s ─► samples ─► Ledger.Report
//	archive ── Queues ─────────┤
//	workers ── Book (Observer) ┘
//
// For each Account, which is a work queue with its wait queues and its failed queue, from the
// moment at which it was opened:
//
//	  was there + published
//	= done + ready + unacked + waiting + failed + replayed + discarded + removed
//
// The remainder is a Difference: messages are missing, or there are more than came in. It has a
// window, from the last sample that shows that it was not there to the first that shows it, and
// Reasons. Figures are of different moments, so each sample has a slack: a difference counts as
// far as it is more than the slack.
//
// The ledger counts and does not compare contents. docs/ledger.md specifies each term, when a
// difference counts, what the ledger finds and what it cannot prove.
//
// The package imports the worker library, package failed, internal/sqlkit and internal/mgmtapi.
package ledger

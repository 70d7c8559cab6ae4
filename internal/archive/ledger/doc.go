// Package ledger proves that no message was lost, or reports the queue and the time of a loss.
//
// The broker, the workers and the archive count independently. The broker counts the messages that were published to a
// work queue, and the messages in its queues. The workers count the messages that they have processed. The archive
// counts the failed messages. A Ledger compares the counts:
//
//	broker ── management API ──┐
//	                           ├─► Ledger.Take, every 15 s ─► samples ─► Ledger.Report
//	archive ── Queues ─────────┤
//	workers ── Book (Observer) ┘
//
// An Account is a work queue with its wait queues and its failed queue. Since the opening of the account, this equation
// holds:
//
//	  was there + published
//	= done + ready + unacked + waiting + failed + replayed + discarded + removed
//
// A deviation is a Difference: messages are missing, or there are more messages than were published. A Difference has
// Reasons and a window, from the last sample without the discrepancy to the first sample with it. The figures of a
// sample are from slightly different times. Therefore each sample has a slack, and only the part of a deviation that
// exceeds the slack counts.
//
// The ledger counts messages and does not compare contents. docs/ledger.md specifies each term, the conditions for a
// discrepancy, the losses that the ledger detects and the limits of the proof.
//
// The package imports packages reprise, topology and failed, internal/amqpvalue, internal/sqlkit and internal/mgmtapi.
package ledger

// Package ledger proves that no message was lost, or says of which queue and when.
//
// Two sides keep count, and neither knows of the other: the broker knows what was
// published to a work queue and what is in its queues; workers know what they have
// done. The archive knows what became of those that failed. A Ledger holds them
// against each other:
//
//	broker ── management API ──┐
//	                           ├─► Ledger.Take, every 15 s ─► samples ─► Ledger.Report
//	archive ── Queues ─────────┤
//	workers ── Book (Observer) ┘
//
// # The equation
//
// For each Account, which is a work queue with its wait queues and its failed queue,
// and from the moment on at which it was opened:
//
//	  was there + published
//	= done + ready + unacked + waiting + failed + replayed + discarded + removed
//
//	was there   messages in all those places when the account was opened
//	published   by clients to the work queue, straight or through exchanges, a replay among them, and
//	            by PublishAt to its levels. What comes back from a wait queue or is given back does not
//	            count (message_stats.publish of the queue; measured with RabbitMQ 3.10 and 4.3)
//	done        acknowledged after the handler returned nil, or as one of a burst (EventDone, EventDebounced)
//	ready       in the work queue, for a worker to take
//	unacked     with a worker
//	waiting     in the wait queues, for their time to pass
//	failed      in the failed queue, and in the archive in the states failed and replaying
//	replayed    sent back from the archive; it is published then, and counted again as that
//	discarded   by a person, in the archive
//	removed     from the archive, by its retention
//
// What is left is the difference. More than nothing: messages are missing. Less: there
// are more than came in.
//
// # When a difference counts
//
// The figures are of different moments: RabbitMQ's are up to ten seconds old (its
// counts and depths are renewed every five, one after the other), those of workers up
// to Book's Every. What moves meanwhile is seen in two places, or in none.
// So each sample has a slack, which is how much has moved, place by place, between it
// and one of those beside it. A sample that is found as it was two more times has none: then the
// equation holds to the message. A difference counts as far as it is more than the
// slack.
//
// On a queue that is never still, a difference is seen when it is more than what comes in,
// is done, fails and is archived in an interval; a smaller one when
// the queue is still, or when others have come to it: differences add up, slack does
// not. It cannot be less. That a count is up to ten seconds old, and which moment it is
// of, the broker does not say; so a message that is lost looks like one that came in a
// moment later. What workers tell is exact, and of no help there: they know what they
// have done, and not what came in, or is in a queue.
//
// A Difference has a window: from the last sample that shows that it was not there yet
// to the first that shows that it was. One that goes away again, because the message was
// only on its way, is forgotten.
//
// # What it finds
//
// Messages that were taken out of a queue by hand or by another consumer, purged,
// expired without a dead-letter exchange, or dropped because a queue was full or the
// broker took them for going in circles; messages that AckThenPublish lost; copies
// that are there beside their original, and messages that were done twice, as their acknowledgement
// was lost with a connection (too many). The Reasons say what else is known of that window: what
// others have acknowledged, what workers have lost, what was given up
// with its connection, that a process ended without a last report, that the broker has
// lost count.
//
// # What it cannot prove
//
// It counts and does not compare contents: if one message is lost and another is
// there twice within one window, the sum is right. A handler that returns nil and has done
// nothing has done it. What never reached a work queue (unroutable, dropped by a
// publisher) did not come in. A message published twice came in twice. That the broker counts
// anew is seen by its counts being less than before: after a restart, more must not come in within
// one interval than ever before.
//
// These look like differences, and are none: what a process had done between
// its last report and its sudden end (missing, with the reason); what came in between
// the last sample and a restart of the broker, which starts to count anew (too many, with
// the reason); what was taken out of a failed queue without an archive, by redrive among
// others (missing, with the reason, as it is published again); what was imported into an
// archive, or scheduled to an exchange rather than a queue, or reached the queue by another
// queue's dead-lettering (too many). Ledger.Accept begins the account anew, on record.
//
// All workers of a queue must have a Book; without any, the ledger says that it does not know.
// The management API must keep counts (rates_mode basic or detailed).
package ledger

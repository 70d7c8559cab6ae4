// Package notification sends events that need attention to webhooks: new error groups, growth, ended replays, open
// breakers, queues near their consumer timeout, unavailable databases and missing messages.
//
//	Reading before ─┐
//	Reading now ────┴─► detect ─┬─► state.advance ─► outbox ─► sender ─► webhook
//	Notifier.Report ────────────┘
//
// The functions detect and state.advance are pure. The database holds a state for each webhook: the reading before,
// and the events of the next message. One transaction takes events out of the state and puts the message into the
// outbox. Therefore only one of the processes that share a database sends a message, and messages survive the exit of
// a process.
//
// A message leaves the outbox if the receiver accepts it, if the receiver answers 410, or after GiveUp. To claim a
// message, a sender moves the time of its next attempt. If the sender exits, another process makes that attempt. A
// receiver can thus get a message twice, with the same webhook-id.
//
// docs/notifications.md is the user's guide.
package notification

// Package notification tells people by webhook what needs their attention: new error groups, growth, ended replays, open
// breakers, near consumer timeouts, unavailable databases and missing messages.
//
//	Reading before ─┐
//	Reading now ────┴─► detect ─┬─► state.advance ─► outbox ─► sender ─► webhook
//	Notifier.Report ────────────┘
//
// The functions detect and state.advance are pure. Each webhook has a state of its own in the database: the reading before, and
// the events that its next message will have. The transaction that takes events out of the state also puts the message into the outbox. So
// processes that share a database send each message once, and a process that ends loses none.
//
// A message leaves the outbox when the receiver has accepted it, or has answered 410, or after GiveUp. To claim a message, a
// sender moves the time of its next attempt. If the sender dies, that attempt is made by another process. A receiver can thus get
// a message twice, with the same webhook-id.
//
// docs/notifications.md is the user's guide.
package notification

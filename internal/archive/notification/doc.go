// Package notification sends events that need attention to webhooks: new error groups, growth, ended replays, open
// breakers, handlers near the acknowledgement timeout, unavailable databases and missing messages.
//
//	Reading before ─┐
//	Reading now ────┴─► detect ─┬─► state.advance ─► outbox ─► sender ─► webhook
//	Notifier.Report ────────────┘
//
// The functions detect and state.advance are pure. The database holds a state for each webhook: the previous reading,
// and the events of the next message. One transaction removes the events from the state and adds their message to the
// outbox. Therefore only one of the processes that share a database creates this message, and the message is not lost
// if a process exits. While the database is unavailable, each process sends its StoreUnavailable events directly.
//
// A message is removed from the outbox if the receiver accepts it, if the receiver responds with status 410, or after
// GiveUp. To claim a message, a sender postpones the time of the message's next attempt. If the sender exits, another
// process makes that attempt. A receiver can therefore get a message twice, with the same webhook-id.
//
// docs/notifications.md is the user guide.
package notification

// Package store stores failed messages in a database, so that operators can search, edit and replay them.
//
// If a worker cannot process a message, it parks the message in a failed queue. The messages of a queue cannot be
// searched, grouped or edited; the messages of an Archive can.
//
//	failed queue ─► Ingest ─► Archive ─┬─► Discard ─► discarded ─► Restore ─┐
//	                            ▲      │                                    │
//	                            └──────┼────────────────────────────────────┘
//	                                   └─► BeginReplay ─► replaying ─► Replayer ─► replayed
//	                                                          └─► EndReplay, refused: failed again
//
// Packages ingest, replay and waiting move messages between the broker and the archive. The archive also lists the messages
// that wait for a retry.
//
// The archive uses SQLite or PostgreSQL through database/sql. The program selects the driver:
//
//	db, err := sql.Open("sqlite", "file:failed.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
//	archive, err := store.Open(ctx, db, store.Config{Dialect: store.SQLite})
//
// The archive stores the complete body of a message, all properties except delivery_mode, and all headers with their
// exact types. It stores an edit in addition to the original. Only Purge removes messages, according to
// Config.Retention and Config.Rules, and only Erase removes the contents of messages that stay. The log and the audit
// log record both. A message that fails again after a replay is archived as a new message, see failed.Message.Back.
//
// Failures of one queue form a Group if their error texts differ only in numbers, IDs, addresses and times. Different
// exit statuses, HTTP statuses, SQLSTATEs and error codes form different groups. Each change of a message updates the
// counters of its group in the same transaction.
//
// Lists of archived messages are sorted by the time of the last failure, in whole seconds, newest first, and then by
// ID. A page begins after the last message of the previous page, so that new messages do not shift the next page. A
// page checks at most 10,000 messages. If it reaches this limit, it may be short or empty, and its cursor continues
// after the last checked message.
//
// All methods are safe for concurrent use, and any number of processes may share a database. Writers wait for each
// other. Readers do not wait.
//
// docs/failed-messages.md is the user's guide.
package store

// Package failed keeps the messages that failed, so that people can work on them.
//
// A worker moves a message that it gives up on to a failed queue, which cannot be searched,
// grouped or edited. An Archive is a database that can:
//
//	failed queue ─► Ingest ─► Archive ─┬─► Discard ─► discarded ─► Restore ─┐
//	                            ▲      │                                    │
//	                            └──────┼────────────────────────────────────┘
//	                                   └─► BeginReplay ─► replaying ─► Replayer ─► replayed
//	                                                          └─► EndReplay, refused: failed again
//
// A Rescheduler also lists the messages that wait for a retry, and acts on them.
//
// It uses SQLite or PostgreSQL through database/sql; the driver is the program's affair:
//
//	db, err := sql.Open("sqlite", "file:failed.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
//	archive, err := failed.Open(ctx, db, failed.Config{Dialect: failed.SQLite})
//
// A message is kept as it was in the failed queue: each byte of its body, all properties but
// delivery_mode, and all headers with their exact types. An edit is kept beside the original.
// Messages leave the archive by Config.Retention and Config.Rules alone, and their contents by Erase, logged and in the audit log. A message
// that fails again after a replay is another message: see Message.Back.
//
// Failures of one queue are a Group if their error texts differ only in numbers, ids, addresses
// and times. Exit statuses, HTTP statuses, SQLSTATEs and error codes tell groups apart. Counts are kept with the group in the transaction of each change.
//
// Lists are ordered by the second of the last failure, newest first, then by ID. A page begins
// after the last message of the page before, so that arrivals move nothing. No page looks at more
// than 10,000 messages that are not selected: such a page is short, and its cursor goes on from
// there.
//
// All methods are safe for concurrent use, and any number of processes may share a database.
// Writers wait for each other; readers wait for nobody. Redrive needs no archive.
//
// The package imports the worker library, topology and, of this module, internal/sqlkit, params
// and tablejson. docs/failed-messages.md is the user's guide.
package failed

// Package failed keeps the messages that failed, so that people can work on them.
//
// A worker moves what it gives up on to a failed queue. There it is safe, but a
// queue cannot be searched, grouped or edited. An Archive is a database that can:
//
//	failed queue ─► Ingest ─► Archive ─┬─► Discard ─► discarded ─► Restore ─┐
//	                            ▲      │                                    │
//	                            └──────┼────────────────────────────────────┘
//	                                   └─► BeginReplay ─► replaying ─► sent ─► replayed
//	                                                          └─► EndReplay, refused: failed again
//
// It speaks to SQLite and PostgreSQL through database/sql; the driver is the
// program's affair:
//
//	db, err := sql.Open("sqlite", "file:failed.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
//	archive, err := failed.Open(ctx, db, failed.Config{Dialect: failed.SQLite})
//
// # Everything is kept
//
// A message is kept as it lay in the failed queue: each byte of its body, all its
// properties but delivery_mode, and all headers with the exact types that they have on
// the wire. A replay sends it as persistent, whatever it was. An edit is kept beside the original. What leaves the archive leaves it by
// Config.Retention alone, logged and as an act in the audit log.
//
// # States
//
//	failed     waiting for a person
//	replaying  part of a replay, not sent yet
//	replayed   sent back, and the broker has confirmed it
//	discarded  dropped by a person, with a reason, and there to be restored
//
// A message that fails again after a replay is another message of the archive: see
// Message.Back.
//
// # Groups
//
// Failures of one queue whose error texts differ in nothing but numbers, ids, addresses and
// times are a group: each of these counts as "*".
//
//	order 17: dial tcp 10.0.0.7:5432: i/o timeout after 1.5s
//	order *: dial tcp *: i/o timeout after *
//
// Counts are kept with the group, in the transaction of each change, so that they cost nothing
// to read.
//
// # Order and search
//
// Lists are ordered by the second of the last failure, newest first, and within it
// by ID. A page begins after the last message of the page before and not at a
// number of messages to skip, so that what arrives meanwhile moves nothing.
//
// Filter.Text finds words: runs of letters and digits, upper or lower case, in the
// errors, the message id, the correlation id and the first 256 KiB of a body that
// is text, as they arrived: not in what they were edited to. All of the words must
// be there, each of them whole. Any text will do to search for: it has no syntax. What
// Config.Redact hides is not found by it.
//
// No page looks at more than 10,000 messages that turn out not to be selected: such a
// page is short, and its string goes on from there. So each page is quick, whatever is
// asked for.
//
// # Concurrency
//
// All methods are safe for concurrent use, and any number of processes may share a
// database. Writers wait for each other; readers wait for nobody.
package failed

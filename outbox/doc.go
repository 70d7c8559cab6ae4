// Package outbox keeps messages in tables of an SQL database until they leave: messages of a transaction, messages that are due
// later, periodic messages, and messages of which only one may exist.
//
//	box, err := outbox.Open(ctx, db, outbox.Config{Dialect: outbox.PostgreSQL})
//	…
//	err = box.Insert(ctx, tx, &outbox.Message{Message: m})            // leaves if tx is committed
//	err = box.Schedule(ctx, &outbox.Message{Message: m, In: time.Hour}) // leaves in an hour
//	…
//	relay, err := outbox.NewRelay(box, client, outbox.RelayConfig{})
//	err = relay.Run(ctx)                                              // publishes, in each process or in some
//
// The guarantees, while the database keeps its data:
//
//   - A message of a committed transaction is published at least once, always with the same MessageID. A consumer that
//     uses package idempotent has its effect once.
//   - A row of a Table of another program becomes one message when it is committed, with the same guarantees.
//   - A message of a transaction that was rolled back never leaves.
//   - A message never leaves before it is due, by the clock of the database.
//   - A message that Cancel counts as Done never leaves. See Result for the others.
//   - Messages of one Key leave in the order of the commits. If a relay crashes or loses its lease, a message of the key and those after it can
//     leave again.
//   - An occurrence of an Entry has one MessageID, and leaves at least once unless it is older than Entry.CatchUp, or is missed
//     and not the latest.
//   - While Message.Unique is taken, no second message with the key is inserted.
//
// One relay publishes at a time, and the others wait for its lease. A row is deleted after the broker has confirmed its message. A
// message that the broker refuses stays in the table, with the error, and is published again after a delay of 1 s to 5 min, until it
// leaves or is canceled. Messages to other destinations do not wait for it.
//
// A message is usually late by less than RelayConfig.Poll, and by a few milliseconds if it was inserted in the process of the
// relay. A program that needs no database can use reprise.Client.PublishAt; messages that wait in the broker cannot be listed or canceled.
//
// If the clock of the database is set back, messages and failed attempts keep their times, so they can wait again, and later messages of
// their keys wait for them. Until the clock shows the earlier time again, Cancel and Move count messages that are due before it as too
// late. Messages that are inserted after the change leave when they are due. If the clock is set back by more than 10 min, periodic messages
// continue from now, so that occurrences can repeat, with their MessageID.
//
// The program provides the database driver. The package imports the worker library, internal/guard, internal/retry,
// internal/sqlkit and internal/tablejson.
package outbox

// Package claimcheck stores large bodies of messages outside the broker. A message then carries only a reference to its
// body, so that queues, retries and the archive stay small, and a body may exceed the limit of the broker
// (reprise.TooLargeError).
//
// A [Check] replaces bodies before they are published, and a middleware restores them before the handler:
//
//	check, err := claimcheck.New(claimcheck.Config{Store: claimcheck.Dir("/var/lib/bodies")})
//	client, err := reprise.Dial(ctx, url, &reprise.Config{BeforePublish: check.BeforePublish})
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue: "orders", Handler: handler, Middleware: []reprise.Middleware{check.Middleware},
//	})
//
// The body is stored before the message is published. If publishing fails, or the process exits in between, the body stays
// in the store without a message. Copies of the message for retries, in the failed queue and in the archive, redriven and
// replayed messages have the same reference, so nothing deletes a body when its message is processed. Let the store delete
// bodies that are older than the longest time for which a message may wait: the backlog, the total time of the Policy, and
// the time in the failed queue or the archive.
//
// The package imports package reprise and the standard library.
package claimcheck

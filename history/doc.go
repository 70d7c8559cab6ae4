// Package history records the throughput, the failures and the handling times of work queues over the last hour, day and week,
// with marks such as deployments, in an SQL database.
//
//	fleet.List ─► Observe ─┐                       ┌─► Series, All ─► Series.Rises
//	                       ├─► Run ─► totals ──────┤
//	failed.Archive ────────┘                       └─► marks
//
// Workers announce totals since their start (topology.WorkerStatus). A History adds the difference to the totals that the
// database has of the same worker, in one transaction. Therefore:
//
//   - a lost status loses nothing, and a repeated one adds nothing
//   - any number of processes can record the same workers into one database
//   - what a worker did while nobody recorded is added later. It is spread evenly over that time, and the intervals are not
//     Recorded: their sum is exact, and their shape is not known.
//
// Messages that arrive in the archive count by the time of their failure, also those of workers that announce nothing.
//
// Each queue has rows of a minute, of five minutes and of an hour, each with all that happened in it. Rows are written to all
// three, and removed when they are too old: 3 hours, 25 hours and 8 days. A queue so has at most 700 rows of about 100 bytes, and
// a database MaxQueues queues.
//
// The package imports the packages failed, topology and internal/sqlkit. docs/history.md is the user's guide.
package history

// Package history records the throughput, the failures and the handling times of work queues over the last hour, day
// and week, with marks such as deployments, in an SQL database.
//
//	fleet.List ─► Observe ─┐                       ┌─► Series, All ─► Series.Rises
//	                       ├─► Run ─► totals ──────┤
//	store.Archive ────────┘                       └─► marks
//
// Workers announce totals since their start (protocol.WorkerStatus). In one transaction, a History compares the totals
// with the stored totals of the same worker, adds the difference, and stores the new totals. Therefore:
//
//   - a lost status does not lose events, and a repeated status does not add events
//   - any number of processes can record the same workers into one database
//   - if no process records for some time, the events of that time are added later and spread evenly over the intervals
//     in it. These intervals are not Recorded: their sum is exact, but the distribution of the events among them is not
//     known
//
// Messages that arrive in the archive count at the time of their failure, even if their workers do not announce
// themselves.
//
// Each queue has one row per minute, per five minutes and per hour, and each event counts in one row of each kind.
// These rows are removed after 3 hours, 25 hours and 8 days, respectively. A queue has at most 700 rows of about 100
// bytes. A database has at most MaxQueues queues.
//
// The package imports the packages failed, topology and internal/sqlkit. docs/history.md is the user guide.
package history

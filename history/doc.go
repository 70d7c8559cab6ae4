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
//   - a lost status does not lose events, and a repeated status does not add events
//   - any number of processes can record the same workers into one database
//   - the events of a time without a recording process are added later, spread evenly over that time. The intervals are not
//     Recorded. Their sum is exact, and their shape is not known.
//
// Messages that arrive in the archive count by the time of their failure, also if their workers do not announce themselves.
//
// Each queue has rows of a minute, of five minutes and of an hour. An event is in a row of each length. Rows are removed when
// they are too old: 3 hours, 25 hours and 8 days. A queue has at most 700 rows of about 100 bytes, and
// a database MaxQueues queues.
//
// The package imports the packages failed, topology and internal/sqlkit. docs/history.md is the user's guide.
package history

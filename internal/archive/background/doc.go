// Package background contains what packages ingest, replay and waiting share: leases on work that one process does at a time,
// the collection of reports, and the delays and limits of long-running loops.
package background

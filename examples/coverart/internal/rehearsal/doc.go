// Package rehearsal runs the cover art indexer with all its services: RabbitMQ or the embedded broker, a PostgreSQL
// database that contains a few releases, an S3 store, and a simulated MusicBrainz web service.
//
//	plan ─► publish ─► cover-art-archive ─► three workers ─► coverart.Indexer ─┬─► PostgreSQL
//	  │                     ▲        │                                         ├─► S3, which rejects one bucket
//	  │                     └ retry ◄┴─► failed                                └─► web service, overloaded at first
//	  └──────────────────────────────────┴─► ledger: published = done + equal to one done + parked
//
// The plan covers the possible cases: a burst of equal events, the old id of a merged release, an unknown release,
// moved objects, objects that are already deleted, an invalid body, and a bucket that rejects writes. The plan contains
// the expected outcome of each event. The rehearsal compares the outcomes with the queues and the store.
//
// The program is in examples/coverart.
package rehearsal

// Package rehearsal plays the cover art indexer through, with everything around
// it: RabbitMQ or the broker in the process, a PostgreSQL with a few releases, an
// S3 and a stand-in for the MusicBrainz web service.
//
//	plan ─► publish ─► cover-art-archive ─► three workers ─► coverart.Indexer ─┬─► PostgreSQL
//	  │                     ▲        │                                         ├─► S3, which refuses one bucket
//	  │                     └ retry ◄┴─► failed                                └─► web service, busy at first
//	  └──────────────────────────────────┴─► ledger: published = done + equal to one done + parked
//
// What is published has something of everything: a burst of equal events, the old
// id of a release that was merged, a release that nobody knows, what is to be moved,
// what is gone already, a body that makes no sense, a bucket that refuses. What has
// to come of each is part of the plan, and held against what came, in the queues
// and in the store.
//
// The program is in examples/coverart.
package rehearsal

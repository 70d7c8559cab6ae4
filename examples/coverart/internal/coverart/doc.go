// Package coverart is the cover art indexer of MusicBrainz as three handlers:
// it keeps what an archive stores for a release in step with what the database
// says about it.
//
//	database's triggers ─► cover-art-archive ─┬ index ──► Index ──┬─◄ release and images, of PostgreSQL
//	                        ▲                 │                   ├─► index.json, to S3
//	                        │                 │                   ├─◄ the release's XML, of the web service
//	                        │                 │                   └─► mbid-{gid}_mb_metadata.xml, to S3
//	                        │                 ├ delete ─► Delete ───► DELETE, to S3
//	                        │                 └ move ───► Move ─────► copy, then DELETE, to S3
//	                        └─ 4 h ─ .retry ◄─ failed, up to 4 times ─► .failed
//
//	event    body                              what is done
//	index    gid                               index.json and the release's metadata are written anew
//	delete   id \n gid [\n suffix]             the image mbid-{gid}-{id}.{suffix} is deleted, or index.json
//	move     id \n old \n new [\n suffix]      the image is copied to the release it belongs to now, then deleted
//
// A gid is the MBID of a release, an id the number of an image. A suffix that
// is missing is "jpg". Every release has a bucket of its own, mbid-{gid}. A gid
// that was merged into another release leads there; a release that is not in the
// database is skipped.
//
// Every handler may run any number of times for the same event: writing again
// writes the same, what is already gone needs no deleting, what is already
// moved needs no moving. So a message may be delivered twice, and come back
// after a crash, without harm.
//
// What comes of an attempt:
//
//	nil             done
//	reprise.Park    the body can never be understood
//	other errors    the archive or the web service did not do it (this time)
//
// Retrying is left to Reprise altogether: nothing in here tries anything twice.
// Package rehearsal plays it all through; examples/coverart is the program.
//
//	indexer := &coverart.Indexer{Catalogue: catalogue, Archive: archive, WebService: service}
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:       preset.CoverArtIndexQueue,
//		Strategy:    preset.CoverArt{}.Strategy(),
//		Handler:     reprise.HandlerFunc(indexer.Index),
//		Debounce:    &reprise.Debounce{Window: coverart.Grace, Key: reprise.ContentKey},
//		Concurrency: 8,
//	})
package coverart

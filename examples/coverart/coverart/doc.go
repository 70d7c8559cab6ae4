// Package coverart implements the cover art indexer of MusicBrainz as three handlers. They update an image archive to
// match the database.
//
//	database's triggers ─► cover-art-archive ─┬ index ──► Index ──┬─◄ release and images, from PostgreSQL
//	                        ▲                 │                   ├─► index.json, to S3
//	                        │                 │                   ├─◄ the release's XML, from the web service
//	                        │                 │                   └─► mbid-{gid}_mb_metadata.xml, to S3
//	                        │                 ├ delete ─► Delete ───► DELETE, to S3
//	                        │                 └ move ───► Move ─────► copy, then DELETE, to S3
//	                        └─ 4 h ─ .retry ◄─ failed, up to 4 times ─► .failed
//
//	event    body                              action
//	index    gid                               write index.json and the release's metadata again
//	delete   id \n gid [\n suffix]             delete the image mbid-{gid}-{id}.{suffix}, or index.json
//	move     id \n old \n new [\n suffix]      copy the image to its new release, then delete the original
//
// A gid is the MBID of a release, and an id is the number of an image. The default suffix is "jpg". Each release has a
// bucket mbid-{gid}. The gid of a merged release refers to the target of the merge. Indexer.Index skips a release that
// is not in the database.
//
// Each handler can run any number of times for the same event. It writes the same objects again, and skips objects that
// are already deleted or moved. Therefore a redelivery, for example after a crash, is harmless.
//
// Results of an attempt:
//
//	nil             done
//	reprise.Park    the body is invalid
//	other errors    the database, the archive or the web service failed this time
//
// The handlers do not retry requests themselves, because Reprise retries failed messages. Package rehearsal runs the
// whole design, and examples/coverart is the program.
//
//	indexer := &coverart.Indexer{Catalogue: catalogue, Archive: archive, WebService: service}
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:       "cover-art-archive.index",
//		Strategy:    coverart.Design{}.Strategy(),
//		Handler:     reprise.HandlerFunc(indexer.Index),
//		Debounce:    &reprise.Debounce{Window: coverart.Grace, Key: reprise.ContentKey},
//		Concurrency: 8,
//	})
package coverart

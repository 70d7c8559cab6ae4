// Package archive runs an archive of failed messages and those around it, as a part of a simulated life: processes that
// archive, send back and show failed messages, workers whose messages fail, a store of duplicates, and people who search,
// discard, edit and replay by the pages of the console, its JSON API and the methods of package failed.
//
//	System ─┬─ Process "up"       workers, Ingest, Replayer, console, ledger ─┬─► Database ─► SQLite file
//	        ├─ Process "console"  Ingest, Replayer, console                  ─┘   hangs, fails, is killed between statements
//	        ├─ Browser            pages, links, forms
//	        └─ Check              rows, contents, effects, audit log, replays, ledger
//
// A process is killed without its goroutines: none of its statements reaches the file any more, its connections are closed,
// and its files are copied as they are at that moment. Then the copy is used.
//
// SQLite is the real one, in real files. Its work takes no virtual time. The wait for a lock does, and is made by Database.
//
// Package simulation has the adapter. This package does not know it.
package archive

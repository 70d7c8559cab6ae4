// Package archive simulates an archive of failed messages and its environment: processes that archive, replay and show
// failed messages, workers whose messages fail, and a store of duplicates. Simulated users search, discard, edit and replay
// messages with the pages of the console, its JSON API and the methods of package failed.
//
//	System ─┬─ Process "up"       workers, Ingest, Replayer, console, ledger ─┬─► Database ─► SQLite file
//	        ├─ Process "console"  Ingest, Replayer, console                  ─┘   hangs, fails, is killed between statements
//	        ├─ Browser            pages, links, forms
//	        └─ Check              rows, contents, effects, audit log, replays, ledger
//
// To kill a process, Process.Kill stops its statements, closes its connections, and copies its files at that moment. The
// system continues with the copy. The goroutines of the process return later.
//
// The simulation uses the real SQLite with real files. Virtual time does not advance while SQLite works, but Database
// waits for locks in virtual time.
//
// Package simulation contains the adapter. This package does not import package simulation.
package archive

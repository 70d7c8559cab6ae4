// Package replay kills the processes that take messages into an archive and send them
// back, over and over, and holds what came of it against what there was: each message
// is in the archive once, as replayed, and has arrived at least once.
//
//	this process: fills, kills, counts ─┬─► SQLite file ◄─┬─ a process that is killed (SIGKILL)
//	                                    └─► broker      ◄─┘
package replay

// Package replay kills processes while messages are archived, replayed and handled, and compares the archive with the events:
//
//   - each message is in the archive once, as replayed, and has arrived at least once;
//   - a message of a replay with an edit arrives edited, with the same bytes each time;
//   - each message of a replay has exactly one outcome, which equals the result of its handler;
//   - no act loses a waiting message, and only the copies of an act are duplicated.
//
// The killed processes (SIGKILL) are this test program in another role:
//
//	this process: fills, kills, counts ─┬─► SQLite file ◄─┬─ replay, ingest, or both (desk); act
//	                                    └─► broker      ◄─┴─ worker
package replay

// Package replay kills processes that archive, replay and process messages, and then verifies the archive:
//
//   - The archive contains each message once, in state replayed, and each message has arrived at least once.
//   - A message that is replayed with an edit arrives edited, and its duplicates have the same bytes.
//   - Each message of a replay has exactly one outcome, which equals the result of its handler.
//   - An act on waiting messages does not lose a message, and duplicates at most the copies in flight.
//
// The killed processes (SIGKILL) are this test program in other roles:
//
//	this process: fills, kills, counts ─┬─► SQLite file ◄─┬─ replay, ingest, or both (service); act
//	                                    └─► broker      ◄─┴─ worker
package replay

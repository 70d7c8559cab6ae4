// Package replay sends failed messages to their work queues again. A Replayer executes the replays of an archive, with their
// pace, edits and outcomes. Redrive moves messages from a failed queue without an archive. Both find the destination of a
// message in the same way, see Routing, and Destinations shows it before anything is sent.
package replay

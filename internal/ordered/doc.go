// Package ordered handles the messages of one key in order, one at a time, also while one of them waits for its retry.
//
// The messages of a work queue are divided by key into partitions. A partition consists of two quorum queues with a single
// active consumer: the partition itself, and its held queue. All processes subscribe to the held queue; the active consumer
// owns the partition, and only the owner consumes the partition. A Partition is the state of an owner. It does no input and
// output. It receives deliveries, results and the time, and returns actions.
//
// If a message fails, the owner publishes copies of the message and of its followers to the held queue, and acknowledges each
// original after the broker has delivered the copy back to the owner. The copies wait unacknowledged in memory. If the owner
// loses its channel, its successor receives them.
//
// The owner also limits the rate of the attempts of each key. The messages of a key above its rate wait in the partition, and in
// the held queue when they occupy too much of the window.
//
// # Guarantees
//
// In the order of the epochs, and ignoring handlers of an epoch after a handler of a later epoch has started:
//
//   - A message of a key begins after the previous message of the key is done. After a change of the owner, a key may repeat
//     from an earlier message on, but it repeats all messages from there.
//   - A message remains in a queue until it is done.
//
// They follow from these rules:
//
//   - A copy that was delivered back was in the queue before another process became the owner, so the other process receives
//     the copy before its own marker. A confirm does not prove this, because a process may receive confirms after it has
//     lost the held queue to another process, for example while nodes are disconnected.
//   - The copies of a key are published one at a time, so that no copy exists without the previous copy.
//   - The broker may apply acks of one queue and lose acks of another queue. Before a message without a copy may be
//     acknowledged, a record in the held queue (Done) therefore ends the copies of its key.
//   - Copies that arrive after the marker, and that another process has published, were never delivered back to that process.
//     It has not acknowledged the originals, so the copies are ignored.
//
// See docs/adr/0029-order-per-key.md.
package ordered

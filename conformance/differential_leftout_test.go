package conformance

// The scripts of TestDifferential avoid behavior in which RabbitMQ itself is inconsistent or slow:
//
//   - the order of copies of one message, or of messages settled or published together, in a queue that they reach by
//     different routes: each queue of RabbitMQ is a separate process, so the order is random
//   - the order in which consumers of one channel on different queues receive messages: each queue of RabbitMQ is a
//     separate process, so the order is random
//   - the order in which messages of several consumers of a channel are requeued or dead-lettered, if they are settled
//     together: RabbitMQ settles them consumer by consumer, in the order of their tags
//   - the moment at which a quorum queue with overflow `reject-publish` starts or stops refusing messages: the limit
//     is soft, because RabbitMQ notifies each channel later
//   - the retry of an `at-least-once` dead letter that no queue has accepted: RabbitMQ retries after 180 s, the
//     embedded broker after 5 s
//   - the moment at which a message expires in a classic priority queue with other messages: RabbitMQ only checks for
//     expired messages during another operation on such a queue
//   - consecutive messages for a consumer with a prefetch and automatic acks, from a queue that drops messages that it
//     cannot deliver immediately: a quorum queue of RabbitMQ acks with a delay, and the message counts toward the
//     prefetch until then
//   - consecutive messages that expire immediately, in a full queue: in RabbitMQ, a message either expires or is
//     dropped to make room for the next message; consumers see no difference, except in `x-death`
//   - reuse of a consumer tag while messages of the cancelled consumer are unsettled: a quorum queue of RabbitMQ
//     treats the cancelled and the new consumer as one
//   - a consumer with a higher priority than the single active consumer of a quorum queue: if it is cancelled before
//     it becomes active, and the channel of the active consumer then closes, RabbitMQ keeps the active consumer, and
//     its messages stay unacked
//   - a queue that is deleted, and declared again with another type: a channel of RabbitMQ that has used the deleted
//     queue keeps its state: if the channel publishes to the new queue, RabbitMQ closes the connection with 541
//   - transient queues: whether RabbitMQ permits them depends on its configuration
//   - TTLs other than zero and infinite: expiration between two steps depends on the clock; separate tests cover it

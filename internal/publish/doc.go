// Package publish publishes messages with confirms, and reports for every message whether the
// broker has it.
//
// A [Publisher] has one fast channel for all that cannot hold up or harm other messages, and
// a bounded number of bulkheads: channels for messages that could hold up or harm the
// others, with few messages in flight. A message takes a bulkhead
//
//   - while its destination (exchange and routing key) is late: RabbitMQ stops a channel at
//     the first message for a quorum queue without a majority
//   - if it is unproven, the first one for an exchange, with a user id, or of a size: the
//     broker answers a message that it must not take by closing the channel, which leaves
//     all others in flight on it without an answer
//
// Docs/adr/0012 has the reasons and the measurements. The package promises that a result is
// true: nil means stored, and only ErrUnconfirmed and ErrNacked leave it open whether the
// message is stored. It imports the packages amqpconn, retry and backoff.
package publish

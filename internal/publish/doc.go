// Package publish publishes messages with confirms, and reports for every message whether the
// broker has stored it.
//
// A [Publisher] has one fast channel for messages that cannot delay or harm other messages. It also
// has a limited number of bulkheads: channels with few messages in flight, for messages that
// could delay or harm others. A message uses a bulkhead in two cases:
//
//   - Its destination (exchange and routing key) is late. RabbitMQ stops a channel at
//     the first message for a quorum queue without a majority.
//   - The message is unproven, because it is the first for an exchange, with a user id, or of a
//     size. The broker refuses a forbidden message by closing the channel, which leaves
//     all other messages in flight on the channel without an answer.
//
// Docs/adr/0012 documents the reasons and the measurements. The package guarantees that results are
// true. The result nil means that the broker has stored the message. Only ErrUnconfirmed and ErrNacked
// do not tell whether it did. The package imports amqpconn, retry and backoff.
package publish

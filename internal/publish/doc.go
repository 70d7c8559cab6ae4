// Package publish publishes messages with confirms, and reports for every message whether the
// broker has stored it.
//
// A [Publisher] has one fast channel for messages that cannot delay or harm other messages. It also
// has a limited number of bulkheads: channels with few messages in flight, for messages that
// could delay or harm others. A message uses a bulkhead in two cases:
//
//   - Its destination (exchange and routing key) is late. RabbitMQ holds back the first message for a
//     quorum queue without a majority, and all later messages on the channel, for 65 s.
//   - The message is unproven, because the broker has not yet accepted its exchange, its user
//     id, or a body of its size. The broker refuses a forbidden message by closing the channel, which leaves
//     all other messages in flight on the channel without an answer.
//
// See docs/adr/0012 for the reasons and the measurements. The package guarantees that results are correct. A nil error
// means that the broker has stored the message. ErrUnconfirmed and ErrNacked mean that the broker may have stored the
// message. Any other error means that it has not. The package imports amqpconn, retry and backoff.
package publish

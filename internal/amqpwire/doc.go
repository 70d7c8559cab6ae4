// Package amqpwire is the codec of AMQP 0-9-1: frames, methods, content headers, properties
// and field tables, with RabbitMQ's extensions. It turns bytes into values and values into
// bytes, and knows nothing of connections or channels. The worker library and the broker
// share it; it imports the standard library only.
//
// A client opens with the eight bytes of [ProtocolHeader]. After that both sides send frames:
// see [Frame] for their form, [Table] for the types of a field.
//
// It promises that no decoder panics on any input, and that none allocates in proportion to a
// length that the input does not cover. Tables and arrays nest at most [MaxDepth] deep.
// Decoded strings and tables are copies and outlive the input; [Frame.Payload] and
// [ContentHeader.Properties] alias it.
package amqpwire

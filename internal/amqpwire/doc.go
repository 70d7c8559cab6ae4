// Package amqpwire encodes and decodes AMQP 0-9-1: frames, methods, content headers, properties and field tables, with
// RabbitMQ's extensions. It does not handle connections or channels. The worker library and the broker share the
// package. It imports only the standard library.
//
// A client opens a connection with the eight bytes of [ProtocolHeader]. After that both sides send frames. [Frame] describes
// their format, and [Table] describes the types of field values.
//
// The package guarantees that decoders do not panic on any input, and that they do not allocate memory in proportion to
// a length that exceeds the input. Tables and arrays nest at most [MaxDepth] deep. Decoded strings and tables are
// copies and outlive the input. [Frame.Payload] and [ContentHeader.Properties] alias the input.
package amqpwire

// Package rabbitholetest tests the management API of the embedded broker and of RabbitMQ with rabbit-hole, the client that most
// Go programs use.
package rabbitholetest

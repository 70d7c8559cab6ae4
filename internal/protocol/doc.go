// Package protocol is what workers, archives and the command line tell each other in messages: the status of a worker, the
// commands and pauses of an operator, reports of retries, and outcomes of replayed messages. docs/worker-protocol.md
// describes the messages for programs in other languages.
package protocol

const (
	maxName      = 255     // bytes of a name in AMQP
	maxErrorText = 4 << 10 // bytes of an error
)

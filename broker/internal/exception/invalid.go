package exception

import "strings"

// Invalid lists the mistakes in a policy or a parameter, in the words of RabbitMQ's management API.
type Invalid []string

// Error implements error.
func (e Invalid) Error() string { return "Validation failed\n\n" + strings.Join(e, "\n") + "\n" }

// Package api contains the JSON types of the API /api/v1 of package console, and a client.
//
// Most types correspond to types of package failed, and have JSON names and conversion functions. AMQP has byte strings
// and JSON does not, so [Text] encodes byte strings. [Headers] preserves the exact types of headers.
package api

import "github.com/reprisemq/reprise/internal/params"

// Types of fields.
type (
	Text     = params.Text
	Duration = params.Duration
)

// Package api implements /api/v1 of package console in Go: JSON types and a client.
//
// The types correspond to the types of package failed, with JSON names and conversions in both directions. AMQP has
// byte strings and JSON does not, so [Text] encodes them. [Headers] keep their exact types.
package api

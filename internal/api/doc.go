// Package api contains the JSON types and a client of the API /api/v1 of package console.
//
// The types correspond to the types of package failed, with JSON names and conversions in both directions. AMQP has
// byte strings and JSON does not, so [Text] encodes them. [Headers] preserves the exact types of headers.
package api

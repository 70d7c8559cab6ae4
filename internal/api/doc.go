// Package api is /api/v1 of package console in Go: its JSON types, and a client.
//
// The types are those of package failed with names for JSON, and conversions both
// ways. What AMQP has as bytes, and JSON has not, travels as [Text]; headers keep
// their exact types, as [Headers].
package api

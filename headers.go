package reprise

import (
	"strings"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// Headers that keep what a copy must not carry in its proper place. They are
// written only where needed, and a handler sees their values where they first
// were.
const (
	// HeaderCC keeps the header CC: in its place, the broker would route every
	// copy to those keys too.
	HeaderCC = "x-reprise-cc"

	// HeaderUserID keeps the property user-id where it is not the user of our
	// own connection: the broker refuses such a copy.
	HeaderUserID = "x-reprise-user-id"

	// HeaderExpiration keeps the property expiration, as the text it was: a
	// copy would expire while it waits, or out of the failed queue.
	HeaderExpiration = "x-reprise-expiration"
)

const (
	headerCC  = "CC"
	headerBCC = "BCC"
)

// brokers reports whether a header is RabbitMQ's own account of earlier
// deliveries and deaths. It belongs to the delivery, not to the message:
// republished, it would mislead dead-letter cycle detection on some releases
// and be dropped by others.
func brokers(header string) bool {
	switch header {
	case "x-death", "x-delivery-count", "x-acquired-count":
		return true
	}
	return strings.HasPrefix(header, "x-first-death-") || strings.HasPrefix(header, "x-last-death-")
}

// ours reports whether a header is one that Reprise writes whatever the marks.
func ours(header string) bool {
	switch header {
	case HeaderCC, HeaderUserID, HeaderExpiration, HeaderCrashes:
		return true
	}
	return strings.HasPrefix(header, topology.HeaderLevel)
}

// middlewareHeaders are headers of Reprise that middleware writes with Annotate: HeaderBusy of package idempotent, and
// HeaderPrevious of package oteltrace.
var middlewareHeaders = map[string]bool{"x-reprise-busy": true, "x-reprise-previous-traceparent": true}

// reserved reports whether a handler may not write a header.
func reserved(header string) bool {
	if middlewareHeaders[header] {
		return false
	}
	return strings.HasPrefix(header, "x-reprise-") || brokers(header) || header == headerCC || header == headerBCC
}

// visible returns the headers a handler sees: the message's own, as first
// published.
func visible(headers topology.Table, marks topology.Marks) map[string]any {
	out := make(map[string]any, len(headers))
	for k, v := range headers {
		switch {
		case brokers(k), marks.Owns(k), ours(k):
		default:
			out[k] = amqpconn.CloneValue(v)
		}
	}
	if cc, stashed := headers[HeaderCC]; stashed {
		out[headerCC] = amqpconn.CloneValue(cc)
	}
	return out
}

// carry puts a delivery into the copy, and returns the headers that it carries: all that
// survives, with the rest stashed. The marks are still to be written on them.
func (c *replacement) carry(d *delivery, user string) topology.Table {
	headers := make(topology.Table, len(d.Headers))
	for k, v := range d.Headers {
		if !brokers(k) && k != headerCC && k != headerBCC && !strings.HasPrefix(k, topology.HeaderLevel) {
			headers[k] = amqpconn.CloneValue(v)
		}
	}
	stash := func(name string, value any) {
		if _, stashed := headers[name]; !stashed { // what is stashed is older, and so the original
			headers[name] = value
		}
	}
	if cc, found := d.Headers[headerCC]; found {
		stash(HeaderCC, amqpconn.CloneValue(cc))
	}
	if d.Expiration != "" {
		stash(HeaderExpiration, d.Expiration)
	}
	c.msg = amqpconn.Message{
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		Priority:        d.Priority,
		CorrelationID:   d.CorrelationID,
		ReplyTo:         d.ReplyTo,
		MessageID:       d.MessageID,
		Timestamp:       d.Timestamp,
		Type:            d.Type,
		UserID:          d.UserID,
		AppID:           d.AppID,
		Body:            d.Body,
	}
	if c.msg.MessageID == "" {
		c.msg.MessageID = d.copyID()
	}
	if d.UserID != "" {
		delete(headers, HeaderUserID) // the broker has checked the property, not the header
		if d.UserID != user {
			stash(HeaderUserID, d.UserID)
			c.msg.UserID = ""
		}
	}
	return headers
}

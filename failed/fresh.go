package failed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// Headers of programs that are there already: see package topology/preset.
const (
	headerRetries    = "mb-retries"
	headerExceptions = "mb-exceptions"
	headerProcessing = "x-processing-attempts"
)

// spent reports whether a header is what the attempts so far have left on a
// message, so that without it the message has all of them before it. marks are
// those of workers, beside Reprise's own and those of the presets.
func spent(header string, marks []topology.Marks) bool {
	switch header {
	case topology.HeaderReplay, topology.HeaderOutcome, reprise.HeaderCrashes, topology.HeaderWaits, headerRetries, headerExceptions, headerProcessing:
		return true
	case topology.HeaderQueue, topology.HeaderExchange, topology.HeaderRoutingKey:
		return false // they tell the handler where it was first published
	}
	return amqpvalue.IsBrokerHeader(header) || strings.HasPrefix(header, topology.HeaderLevel) || topology.Trail{}.Owns(header) ||
		slices.ContainsFunc(marks, func(m topology.Marks) bool { return m.Owns(header) })
}

// fresh returns a message to publish that has all its attempts before it. What must
// not travel in its proper place, be it that the broker would route by it (CC),
// refuse it (user-id) or let the message expire, is stashed in the headers from
// which a worker shows it to its handler.
func fresh(c Content, marks []topology.Marks) *reprise.Message {
	headers := make(map[string]any, len(c.Headers)+1)
	for name, value := range c.Headers {
		if !spent(name, marks) {
			headers[name] = value
		}
	}
	stash := func(name string, value any) {
		if _, found := headers[name]; !found {
			headers[name] = value
		}
	}
	if cc, found := headers["CC"]; found {
		stash(reprise.HeaderCC, cc)
	}
	delete(headers, "CC")
	delete(headers, "BCC")
	p := c.Properties
	if p.UserID != "" {
		headers[reprise.HeaderUserID] = p.UserID // the broker has checked the property, not the header
	}
	if p.Expiration != "" {
		stash(reprise.HeaderExpiration, p.Expiration)
	}
	return &reprise.Message{
		Body:            c.Body,
		Headers:         headers,
		ContentType:     p.ContentType,
		ContentEncoding: p.ContentEncoding,
		CorrelationID:   p.CorrelationID,
		ReplyTo:         p.ReplyTo,
		MessageID:       p.MessageID,
		Type:            p.Type,
		AppID:           p.AppID,
		Priority:        p.Priority,
		Timestamp:       p.Timestamp,
		NoTimestamp:     true, // it is sent as it was
	}
}

// errNowhere is why a message is not sent back to where it failed. To send it to where
// it was taken from would bring it into the archive again, and no worker would see it.
var errNowhere = errors.New("nothing says in which queue it failed: name where to send it")

// to returns where a message goes: to what is named for all, or back to the queue in which it
// failed.
func (r *returns) to(ctx context.Context, m sentFrom, to *Target) (way, error) {
	switch {
	case to != nil:
		return r.toAll(ctx, *to)
	case m.queue == "" || m.queue == m.failedQueue:
		return way{}, errNowhere
	}
	return r.of(ctx, m)
}

// back returns what a replay publishes for a message. One that has no id gets one,
// the same each time, so that if it is sent twice that can be seen.
func back(m *Message, id ReplayID, to way, marks []topology.Marks) *reprise.Message {
	out := fresh(m.Current(), marks)
	out.Exchange, out.RoutingKey = to.Exchange, to.RoutingKey
	out.Headers[topology.HeaderReplay] = fmt.Sprintf("%d/%d", id, m.ID)
	out.MessageID = m.sentID()
	return out
}

// sentID is the message id with which a replay sends m.
func (m *Message) sentID() string {
	return cmp.Or(m.Current().Properties.MessageID, fmt.Sprintf("failed-%d-%d", m.ID, m.Archived.UnixMilli()))
}

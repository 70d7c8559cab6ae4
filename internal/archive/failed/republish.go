package failed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// Headers that programs without Reprise set: see package internal/preset.
const (
	headerRetries    = "mb-retries"
	headerExceptions = "mb-exceptions"
	headerProcessing = "x-processing-attempts"
)

// isAttemptHeader reports whether a header results from earlier attempts. If a message has no such headers, a worker
// counts the attempts from the beginning. marks contains the marks of workers with a custom design, in addition to the
// marks of Reprise and of the presets.
func isAttemptHeader(header string, marks []topology.Marks) bool {
	switch header {
	case topology.HeaderReplay, protocol.HeaderOutcome, protocol.HeaderDue, reprise.HeaderCrashes, reprise.HeaderLease, reprise.HeaderCheckpoint, topology.HeaderWaits, headerRetries, headerExceptions, headerProcessing:
		return true
	case topology.HeaderQueue, topology.HeaderExchange, topology.HeaderRoutingKey:
		return false // the handler reads the original target from them
	}
	return amqpvalue.IsBrokerHeader(header) || strings.HasPrefix(header, topology.HeaderLevel) || topology.Trail{}.Owns(header) ||
		slices.ContainsFunc(marks, func(m topology.Marks) bool { return m.Owns(header) })
}

// Stash moves three values to headers from which a worker restores them for its handler. If a copy had these values, the
// broker would also route it by the header CC, refuse the user-id of another user, and let the copy expire.
func Stash(headers map[string]any, userID, expiration string) {
	keep := func(name string, value any) {
		if _, found := headers[name]; !found { // a stashed value is older, so it is the original value
			headers[name] = value
		}
	}
	if cc, found := headers["CC"]; found {
		keep(reprise.HeaderCC, cc)
	}
	delete(headers, "CC")
	delete(headers, "BCC")
	if userID != "" {
		headers[reprise.HeaderUserID] = userID // the broker has verified the property, but not the header
	}
	if expiration != "" {
		keep(reprise.HeaderExpiration, expiration)
	}
}

// ResetAttempts returns a message to publish, without the headers of earlier attempts. See stash.
func ResetAttempts(c Content, marks []topology.Marks) *reprise.Message {
	headers := make(map[string]any, len(c.Headers)+1)
	for name, value := range c.Headers {
		if !isAttemptHeader(name, marks) {
			headers[name] = value
		}
	}
	p := c.Properties
	Stash(headers, p.UserID, p.Expiration)
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
		Zero:            p.Zero,
		Timestamp:       p.Timestamp,
		NoTimestamp:     true, // the message keeps its original timestamp
	}
}

// ReplayMessage returns the message that a replay publishes for m. If m has no message ID, replayMessage derives an
// ID from m, so that a duplicate can be detected.
func ReplayMessage(m *Message, id ReplayID, to Target, marks []topology.Marks) *reprise.Message {
	out := ResetAttempts(m.Current(), marks)
	out.Exchange, out.RoutingKey = to.Exchange, to.RoutingKey
	out.Headers[topology.HeaderReplay] = fmt.Sprintf("%d/%d", id, m.ID)
	out.MessageID = m.SentID()
	return out
}

// SentID returns the message ID with which a replay publishes m.
func (m *Message) SentID() string {
	return cmp.Or(m.Current().Properties.MessageID, fmt.Sprintf("failed-%d-%d", m.ID, m.Archived.UnixMilli()))
}

package failed

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// Properties and attempts are stored as AMQP tables, which preserve any bytes.

// texts returns the string properties by name. AMQP defines the exchange and the routing key as fields of a delivery,
// not as properties of the basic class.
func (p *Properties) texts() map[string]*string {
	return map[string]*string{
		"content-type": &p.ContentType, "content-encoding": &p.ContentEncoding,
		"correlation-id": &p.CorrelationID, "reply-to": &p.ReplyTo, "message-id": &p.MessageID,
		"type": &p.Type, "app-id": &p.AppID, "user-id": &p.UserID, "expiration": &p.Expiration,
		"exchange": &p.Exchange, "routing-key": &p.RoutingKey,
	}
}

// zeroFlags are the properties that can be present with an empty value.
var zeroFlags = map[string]reprise.PropertySet{
	"content-type": reprise.PropertyContentType, "content-encoding": reprise.PropertyContentEncoding,
	"correlation-id": reprise.PropertyCorrelationID, "reply-to": reprise.PropertyReplyTo, "message-id": reprise.PropertyMessageID,
	"type": reprise.PropertyType, "app-id": reprise.PropertyAppID,
}

// Table returns the properties that are present, by name.
func (p Properties) Table() topology.Table {
	t := make(topology.Table)
	for name, s := range p.texts() {
		if *s != "" || p.Zero&zeroFlags[name] != 0 {
			t[name] = *s
		}
	}
	if p.Priority > 0 || p.Zero.Has(reprise.PropertyPriority) {
		t["priority"] = p.Priority
	}
	if p.Zero.Has(reprise.PropertyHeaders) {
		t["headers"] = topology.Table{}
	}
	if !p.Timestamp.IsZero() {
		t["timestamp"] = p.Timestamp
	}
	return t
}

// PropertiesOf is the inverse of Table.
func PropertiesOf(t topology.Table) (p Properties) {
	for name, s := range p.texts() {
		var found bool
		if *s, found = t[name].(string); found && *s == "" {
			p.Zero |= zeroFlags[name]
		}
	}
	var found bool
	if p.Priority, found = t["priority"].(uint8); found && p.Priority == 0 {
		p.Zero |= reprise.PropertyPriority
	}
	if _, found := t["headers"]; found {
		p.Zero |= reprise.PropertyHeaders
	}
	p.Timestamp, _ = t["timestamp"].(time.Time)
	return p
}

// TablesOf returns a table for each attempt, for storage.
func TablesOf(attempts []reprise.AttemptError) []any {
	out := make([]any, len(attempts))
	for i, e := range attempts {
		t := topology.Table{"attempt": int64(e.Attempt), "error": e.Error, "host": e.Host, "duration": int64(e.Duration)}
		if !e.Time.IsZero() {
			t["time"] = e.Time
		}
		out[i] = t
	}
	return out
}

// AttemptsOf is the inverse of TablesOf.
func AttemptsOf(tables []any) []reprise.AttemptError {
	var out []reprise.AttemptError
	for _, v := range tables {
		t, _ := v.(topology.Table)
		var e reprise.AttemptError
		attempt, _ := t["attempt"].(int64)
		duration, _ := t["duration"].(int64)
		e.Attempt, e.Duration = int(attempt), time.Duration(duration)
		e.Time = amqpvalue.Time(t["time"])
		e.Error, _ = t["error"].(string)
		e.Host, _ = t["host"].(string)
		out = append(out, e)
	}
	return out
}

func DecodeTable(text string) (topology.Table, error) {
	t, err := tablejson.Decode(text)
	if err != nil {
		return nil, Invalid("%w", err)
	}
	return t, nil
}

func EncodeTable(t topology.Table) (string, error) {
	text, err := tablejson.Encode(t)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnstorable, err)
	}
	return text, nil
}

package reprise

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// encodeTable makes a table of the AMQP client. Beside what AMQP knows it takes
// int (as 64 bits: the client would cut it to 32) and maps as nested tables.
func encodeTable(t map[string]any) (amqp.Table, error) {
	if t == nil {
		return nil, nil
	}
	out := make(amqp.Table, len(t))
	for k, v := range t {
		if len(k) > math.MaxUint8 {
			return nil, fmt.Errorf("%w: header name %.40q… has %d bytes: at most 255 are possible", ErrInvalidMessage, k, len(k))
		}
		e, err := encodeValue(v)
		if err != nil {
			return nil, fmt.Errorf("header %q: %w", k, err)
		}
		out[k] = e
	}
	return out, nil
}

func encodeValue(v any) (any, error) {
	switch x := v.(type) {
	case nil, bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64, string, []byte, time.Time, amqp.Decimal:
		return x, nil
	case int:
		return int64(x), nil
	case uint, uint64:
		n, _ := topology.Integer(x)
		if s := fmt.Sprint(x); s != strconv.FormatInt(n, 10) {
			return nil, fmt.Errorf("%w: %s does not fit into AMQP's signed 64 bits", ErrInvalidMessage, s)
		}
		return n, nil
	case topology.Table:
		return nonNil(encodeTable(x))
	case amqp.Table:
		return nonNil(encodeTable(x))
	case map[string]any:
		return nonNil(encodeTable(x))
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			var err error
			if out[i], err = encodeValue(e); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: a value of type %T cannot be sent: see topology.Table for those that can", ErrInvalidMessage, v)
}

// nonNil keeps a nested empty table a table: nil would travel as void.
func nonNil(t amqp.Table, err error) (any, error) {
	if t == nil {
		t = amqp.Table{}
	}
	return t, err
}

// decodeTable makes our table from the client's, sharing nothing with it.
func decodeTable(t amqp.Table) topology.Table {
	out := make(topology.Table, len(t))
	for k, v := range t {
		out[k] = decodeValue(v)
	}
	return out
}

// readTable is decodeTable for a table that is only read. It shares memory with
// the client's.
func readTable(t amqp.Table) topology.Table {
	for _, v := range t {
		switch v.(type) {
		case amqp.Table, []any:
			return decodeTable(t)
		}
	}
	return topology.Table(t)
}

func decodeValue(v any) any {
	switch x := v.(type) {
	case amqp.Table:
		return decodeTable(x)
	case []byte:
		return bytes.Clone(x)
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = decodeValue(e)
		}
		return out
	}
	return v
}

// publishing encodes a user's message.
func (m *Message) publishing() (amqp.Publishing, error) {
	headers, err := encodeTable(m.Headers)
	if err != nil {
		return amqp.Publishing{}, err
	}
	if m.Expiration < 0 {
		return amqp.Publishing{}, fmt.Errorf("%w: Expiration %s is negative: use 0 for none", ErrInvalidMessage, m.Expiration)
	}
	if m.Expiration > maxExpiration {
		return amqp.Publishing{}, fmt.Errorf("%w: Expiration %s is too long: at most %s (ten years) is possible, 0 is for ever",
			ErrInvalidMessage, m.Expiration, maxExpiration)
	}
	return amqp.Publishing{
		Headers:         headers,
		ContentType:     m.ContentType,
		ContentEncoding: m.ContentEncoding,
		DeliveryMode:    amqp.Persistent,
		Priority:        m.Priority,
		CorrelationId:   m.CorrelationID,
		ReplyTo:         m.ReplyTo,
		Expiration:      formatExpiration(m.Expiration),
		MessageId:       m.MessageID,
		Timestamp:       m.Timestamp,
		Type:            m.Type,
		UserId:          m.UserID,
		AppId:           m.AppID,
		Body:            m.Body,
	}, nil
}

// maxExpiration is what RabbitMQ takes. More would cost the channel.
const maxExpiration = 10 * 365 * 24 * time.Hour

// formatExpiration writes milliseconds, rounded up so that nothing expires
// early; 0 is "none".
func formatExpiration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	ms := d.Milliseconds()
	if d%time.Millisecond != 0 {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}

// parseExpiration reads milliseconds; the broker accepts nothing else.
func parseExpiration(s string) time.Duration {
	if s == "" {
		return 0
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 0 {
		return 0
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// contentHeader is the size of a content header frame around the properties:
// frame header and end, class, weight, body size, property flags.
const contentHeader = 7 + 1 + 2 + 2 + 8 + 2

// propertiesSize is the size of msg's properties without its headers.
func propertiesSize(msg *amqp.Publishing) int {
	size := contentHeader + 1 // delivery mode
	for _, s := range shortStrings("", "", msg)[2:] {
		if s.value != "" {
			size += 1 + len(s.value)
		}
	}
	if msg.Priority > 0 {
		size++
	}
	if !msg.Timestamp.IsZero() {
		size += 8
	}
	return size
}

type shortString struct{ name, value string }

func shortStrings(exchange, key string, msg *amqp.Publishing) []shortString {
	return []shortString{
		{"exchange", exchange},
		{"routing key", key},
		{"content-type", msg.ContentType},
		{"content-encoding", msg.ContentEncoding},
		{"correlation-id", msg.CorrelationId},
		{"reply-to", msg.ReplyTo},
		{"expiration", msg.Expiration},
		{"message-id", msg.MessageId},
		{"type", msg.Type},
		{"user-id", msg.UserId},
		{"app-id", msg.AppId},
	}
}

// What brokers add to the headers of a message must fit into its header frame
// as well: RabbitMQ delivers a frame larger than agreed without a second
// thought, and the AMQP client then gives up the connection, with every
// delivery of that message again.
const (
	// roomForDeaths holds x-death with two entries, x-first-death-* and
	// x-last-death-*, with names of 255 bytes throughout, and roomForDelivery.
	roomForDeaths = 4096

	// roomForDeath holds one more entry of x-death.
	roomForDeath = 1024

	// roomForDelivery holds x-delivery-count and x-acquired-count.
	roomForDelivery = 64
)

// roomForStations holds what brokers add to a copy that expires in so many queues.
func roomForStations(n int) int { return roomForDeaths + max(0, n-2)*roomForDeath }

// checkSize refuses what the wire cannot carry. It must be refused here: the
// AMQP client would notice half way through a frame, and the broker by closing
// the connection.
func checkSize(exchange, key string, msg *amqp.Publishing, frameSize, reserve int) error {
	for _, s := range shortStrings(exchange, key, msg) {
		if len(s.value) > math.MaxUint8 {
			return fmt.Errorf("%w: the %s has %d bytes: at most 255 are possible", ErrInvalidMessage, s.name, len(s.value))
		}
	}
	if len(msg.Headers) == 0 {
		return nil
	}
	if size, room := topology.Table(msg.Headers).WireSize(), headerRoom(msg, frameSize, reserve); size > room {
		return fmt.Errorf("%w: the headers take %d bytes, the broker's frames have room for %d: put large values into the body",
			ErrInvalidMessage, size, room)
	}
	return nil
}

// headerRoom is how many bytes of headers fit into the content header frame,
// beside the properties and a reserve. A frame size of 0 means no limit.
func headerRoom(msg *amqp.Publishing, frameSize, reserve int) int {
	if frameSize <= 0 {
		return math.MaxInt32
	}
	return max(1, frameSize-propertiesSize(msg)-reserve)
}

package amqpconn

import (
	"fmt"
	"math"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/topology"
)

// Message contains the properties, headers and body of a delivery or a publication.
type Message struct {
	Headers         topology.Table // headers of a delivery must be read with ReadTable or CloneTable
	ContentType     string
	ContentEncoding string
	CorrelationID   string
	ReplyTo         string
	Expiration      string // milliseconds
	MessageID       string
	Type            string
	UserID          string
	AppID           string
	Timestamp       time.Time
	Priority        uint8
	Body            []byte

	// Zero contains the properties that are present with an empty value or the value 0. Flags of other properties have no
	// effect. A timestamp of 0 is not in Zero: it is time.Unix(0, 0).
	Zero amqpwire.PropertyFlags
}

// zeros returns the properties in Zero whose value is zero, and that the client and a broker accept without a value.
func (m *Message) zeros() amqpwire.PropertyFlags {
	zeros := m.Zero
	for _, p := range m.texts() {
		if *p.value != "" {
			zeros &^= p.flag
		}
	}
	if m.Priority > 0 {
		zeros &^= amqpwire.PropPriority
	}
	if len(m.Headers) > 0 {
		zeros &^= amqpwire.PropHeaders
	}
	return zeros
}

type textProperty struct {
	flag  amqpwire.PropertyFlags
	name  string
	value *string
}

// texts returns the properties that are short strings.
func (m *Message) texts() [9]textProperty {
	return [9]textProperty{
		{amqpwire.PropContentType, "content-type", &m.ContentType},
		{amqpwire.PropContentEncoding, "content-encoding", &m.ContentEncoding},
		{amqpwire.PropCorrelationID, "correlation-id", &m.CorrelationID},
		{amqpwire.PropReplyTo, "reply-to", &m.ReplyTo},
		{amqpwire.PropExpiration, "expiration", &m.Expiration},
		{amqpwire.PropMessageID, "message-id", &m.MessageID},
		{amqpwire.PropType, "type", &m.Type},
		{amqpwire.PropUserID, "user-id", &m.UserID},
		{amqpwire.PropAppID, "app-id", &m.AppID},
	}
}

// Delivery is a delivered message.
type Delivery struct {
	Message
	Tag         uint64
	Redelivered bool
	Exchange    string
	RoutingKey  string
}

// Incoming is a delivery to a consumer.
type Incoming struct {
	Delivery
	ConsumerTag string
}

// Deliveries is the channel of a consumer's deliveries. It closes when the consumer is canceled or the AMQP channel
// closes.
type Deliveries = <-chan Incoming

// newDelivery converts a delivery of amqp091-go.
func newDelivery(d amqp.Delivery) Delivery {
	n := Delivery{
		Message: Message{
			Headers:         topology.Table(d.Headers),
			ContentType:     d.ContentType,
			ContentEncoding: d.ContentEncoding,
			CorrelationID:   d.CorrelationId,
			ReplyTo:         d.ReplyTo,
			Expiration:      d.Expiration,
			MessageID:       d.MessageId,
			Type:            d.Type,
			UserID:          d.UserId,
			AppID:           d.AppId,
			Timestamp:       d.Timestamp,
			Priority:        d.Priority,
			Body:            d.Body,
		},
		Tag: d.DeliveryTag, Redelivered: d.Redelivered, Exchange: d.Exchange, RoutingKey: d.RoutingKey,
	}
	if d.DeliveryMode&zeroMarked != 0 {
		n.readZeros(d.DeliveryMode)
	}
	if size, moved := d.Headers[HeaderUnreadable].(int64); moved && 0 <= size && size <= int64(len(d.Body)) {
		n.Headers[HeaderUnreadable], n.Body = d.Body[:size:size], d.Body[size:]
	}
	return n
}

// readZeros replaces the marks of the filter.
func (m *Message) readZeros(mode uint8) {
	if mode&zeroPriority != 0 {
		m.Zero |= amqpwire.PropPriority
	}
	if mode&zeroHeaders != 0 {
		m.Zero |= amqpwire.PropHeaders
	}
	for _, p := range m.texts() {
		if *p.value == zeroText {
			*p.value = ""
			m.Zero |= p.flag
		}
	}
}

// publishing converts the message to a persistent message in the client's type.
func (m *Message) publishing() amqp.Publishing {
	if zeros := m.zeros(); zeros != 0 {
		marked := *m
		mode := marked.markZeros(zeros)
		p := marked.plain()
		p.DeliveryMode = mode
		return p
	}
	return m.plain()
}

// markZeros sets the marks of the filter, and returns the marked delivery mode.
func (m *Message) markZeros(zeros amqpwire.PropertyFlags) (mode uint8) {
	mode = zeroMarked | amqp.Persistent
	if zeros&amqpwire.PropPriority != 0 {
		mode |= zeroPriority
	}
	if zeros&amqpwire.PropHeaders != 0 {
		mode |= zeroHeaders
	}
	for _, p := range m.texts() {
		if zeros&p.flag != 0 {
			*p.value = zeroText
		}
	}
	return mode
}

func (m *Message) plain() amqp.Publishing {
	return amqp.Publishing{
		Headers:         clientTable(m.Headers),
		ContentType:     m.ContentType,
		ContentEncoding: m.ContentEncoding,
		DeliveryMode:    amqp.Persistent,
		Priority:        m.Priority,
		CorrelationId:   m.CorrelationID,
		ReplyTo:         m.ReplyTo,
		Expiration:      m.Expiration,
		MessageId:       m.MessageID,
		Timestamp:       m.Timestamp,
		Type:            m.Type,
		UserId:          m.UserID,
		AppId:           m.AppID,
		Body:            m.Body,
	}
}

// MaxExpiration is the longest expiration that RabbitMQ accepts. RabbitMQ closes the channel for a longer expiration.
const MaxExpiration = 10 * 365 * 24 * time.Hour

// FormatExpiration returns d in milliseconds, rounded up so that a message does not expire early. It returns "" for 0
// or less.
func FormatExpiration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	ms := d.Milliseconds()
	if d%time.Millisecond != 0 {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}

// ParseExpiration parses milliseconds, the only format that the broker accepts. It returns 0 for other strings.
func ParseExpiration(s string) time.Duration {
	if s == "" {
		return 0
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 0 {
		return 0
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// contentHeader is the size of a content header frame without the properties: frame header and end, class, weight, body
// size, property flags.
const contentHeader = 7 + 1 + 2 + 2 + 8 + 2

// propertiesSize returns the size of msg's properties without its headers.
func propertiesSize(msg *Message) int {
	size := contentHeader + 1 // delivery mode
	for _, p := range msg.texts() {
		switch {
		case *p.value != "":
			size += 1 + len(*p.value)
		case msg.Zero&p.flag != 0:
			size += len(markedText) // the client writes the mark
		}
	}
	if msg.Priority > 0 || msg.Zero&amqpwire.PropPriority != 0 {
		size++
	}
	if !msg.Timestamp.IsZero() {
		size += 8
	}
	return size
}

// The headers that brokers add to a message must also fit into its header frame. RabbitMQ delivers even a frame that is
// larger than negotiated, and the AMQP client then closes the connection, at every delivery of that message.
const (
	// RoomForDeaths is the space for x-death with two entries, x-first-death-* and x-last-death-*, all with names of 255
	// bytes, plus RoomForDelivery.
	RoomForDeaths = 4096

	// roomForDeath is the space for another entry of x-death.
	roomForDeath = 1024

	// RoomForDelivery is the space for x-delivery-count and x-acquired-count.
	RoomForDelivery = 64
)

// RoomForStations returns the space for the headers that brokers add to a copy that expires in n queues.
func RoomForStations(n int) int { return RoomForDeaths + max(0, n-2)*roomForDeath }

// CheckSize returns an error if AMQP cannot represent the message. Without this check, the AMQP client would fail in
// the middle of a frame, or the broker would close the connection.
func CheckSize(exchange, key string, msg *Message, frameSize, reserve int) error {
	address := [...]textProperty{{name: "exchange", value: &exchange}, {name: "routing key", value: &key}}
	texts := msg.texts()
	for _, all := range [...][]textProperty{address[:], texts[:]} {
		for _, p := range all {
			if len(*p.value) > math.MaxUint8 {
				return fmt.Errorf("%w: %s must have at most 255 bytes: got %d", ErrInvalidMessage, p.name, len(*p.value))
			}
		}
	}
	if len(msg.Headers) == 0 {
		return nil
	}
	if size, room := msg.Headers.WireSize(), HeaderRoom(msg, frameSize, reserve); size > room {
		return fmt.Errorf("%w: headers must have at most %d bytes, the room in the broker's frames: got %d (put large values into the body)", ErrInvalidMessage, room, size)
	}
	return nil
}

// HeaderRoom returns the number of bytes that remain for headers in the content header frame, after the properties and
// the reserve. A frame size of 0 means no limit.
func HeaderRoom(msg *Message, frameSize, reserve int) int {
	if frameSize <= 0 {
		return math.MaxInt32
	}
	return max(1, frameSize-propertiesSize(msg)-reserve)
}

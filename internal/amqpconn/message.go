package amqpconn

import (
	"fmt"
	"math"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// Message is the properties, headers and body of a delivery or a publication.
type Message struct {
	Headers         topology.Table // of a delivery: read it with ReadTable or CloneTable
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
}

// Delivery is a message that was delivered.
type Delivery struct {
	Message
	Tag         uint64
	Redelivered bool
	Exchange    string
	RoutingKey  string
}

// Incoming is a delivery as the client hands it over. Only NewDelivery reads it. To convert
// it before would take a goroutine for each consumer.
type Incoming = amqp.Delivery

// Deliveries are the deliveries of a consumer, until it or its channel ends.
type Deliveries = <-chan Incoming

// NewDelivery returns the delivery.
func NewDelivery(d Incoming) Delivery {
	return Delivery{
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
}

// publishing is a persistent message as the client publishes it.
func (m *Message) publishing() amqp.Publishing {
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

// MaxExpiration is the longest expiration that RabbitMQ takes. A longer one costs the channel.
const MaxExpiration = 10 * 365 * 24 * time.Hour

// FormatExpiration writes milliseconds, rounded up so that nothing expires early; 0 is none.
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

// ParseExpiration reads milliseconds; the broker accepts nothing else.
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

// contentHeader is the size of a content header frame around the properties:
// frame header and end, class, weight, body size, property flags.
const contentHeader = 7 + 1 + 2 + 2 + 8 + 2

// propertiesSize is the size of msg's properties without its headers.
func propertiesSize(msg *Message) int {
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

func shortStrings(exchange, key string, msg *Message) []shortString {
	return []shortString{
		{"exchange", exchange},
		{"routing key", key},
		{"content-type", msg.ContentType},
		{"content-encoding", msg.ContentEncoding},
		{"correlation-id", msg.CorrelationID},
		{"reply-to", msg.ReplyTo},
		{"expiration", msg.Expiration},
		{"message-id", msg.MessageID},
		{"type", msg.Type},
		{"user-id", msg.UserID},
		{"app-id", msg.AppID},
	}
}

// What brokers add to the headers of a message must fit into its header frame
// as well: RabbitMQ delivers a frame larger than agreed without a second
// thought, and the AMQP client then gives up the connection, with every
// delivery of that message again.
const (
	// RoomForDeaths holds x-death with two entries, x-first-death-* and
	// x-last-death-*, with names of 255 bytes throughout, and RoomForDelivery.
	RoomForDeaths = 4096

	// roomForDeath holds one more entry of x-death.
	roomForDeath = 1024

	// RoomForDelivery holds x-delivery-count and x-acquired-count.
	RoomForDelivery = 64
)

// RoomForStations holds what brokers add to a copy that expires in so many queues.
func RoomForStations(n int) int { return RoomForDeaths + max(0, n-2)*roomForDeath }

// CheckSize refuses what the wire cannot carry. It must be refused here: the
// AMQP client would notice half way through a frame, and the broker by closing
// the connection.
func CheckSize(exchange, key string, msg *Message, frameSize, reserve int) error {
	for _, s := range shortStrings(exchange, key, msg) {
		if len(s.value) > math.MaxUint8 {
			return fmt.Errorf("%w: the %s has %d bytes: at most 255 are possible", ErrInvalidMessage, s.name, len(s.value))
		}
	}
	if len(msg.Headers) == 0 {
		return nil
	}
	if size, room := msg.Headers.WireSize(), HeaderRoom(msg, frameSize, reserve); size > room {
		return fmt.Errorf("%w: the headers take %d bytes, the broker's frames have room for %d: put large values into the body",
			ErrInvalidMessage, size, room)
	}
	return nil
}

// HeaderRoom is how many bytes of headers fit into the content header frame,
// beside the properties and a reserve. A frame size of 0 means no limit.
func HeaderRoom(msg *Message, frameSize, reserve int) int {
	if frameSize <= 0 {
		return math.MaxInt32
	}
	return max(1, frameSize-propertiesSize(msg)-reserve)
}

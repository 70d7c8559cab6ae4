package amqpwire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// PropertyFlags is a set of message properties.
type PropertyFlags uint16

// Properties of class basic, in wire order.
const (
	PropContentType     PropertyFlags = 0x8000
	PropContentEncoding PropertyFlags = 0x4000
	PropHeaders         PropertyFlags = 0x2000
	PropDeliveryMode    PropertyFlags = 0x1000
	PropPriority        PropertyFlags = 0x0800
	PropCorrelationID   PropertyFlags = 0x0400
	PropReplyTo         PropertyFlags = 0x0200
	PropExpiration      PropertyFlags = 0x0100
	PropMessageID       PropertyFlags = 0x0080
	PropTimestamp       PropertyFlags = 0x0040
	PropType            PropertyFlags = 0x0020
	PropUserID          PropertyFlags = 0x0010
	PropAppID           PropertyFlags = 0x0008
	PropClusterID       PropertyFlags = 0x0004

	propAll PropertyFlags = 0xFFFC
)

const (
	// flagContinued announces another word of flags.
	flagContinued = 0x0001
	// maxFlagWords is the maximum number of flag words. Words after the first contain no properties.
	maxFlagWords = 4
)

// Properties are the properties of a message. Only the properties in Flags are present. All other fields are zero after
// parsing, and Append ignores them.
type Properties struct {
	Flags PropertyFlags

	ContentType     string
	ContentEncoding string
	Headers         Table
	DeliveryMode    uint8 // 2 for a persistent message
	Priority        uint8
	CorrelationID   string
	ReplyTo         string
	Expiration      string // decimal number of milliseconds; RabbitMQ rejects other values
	MessageID       string
	Timestamp       uint64 // seconds since 1970
	Type            string
	UserID          string
	AppID           string
	ClusterID       string
}

// Has reports whether all properties in f are present.
func (p *Properties) Has(f PropertyFlags) bool { return p.Flags&f == f }

// PeekPropertyFlags returns the flags of an encoded property list without parsing the list. It returns 0 if the list is
// too short.
func PeekPropertyFlags(b []byte) PropertyFlags {
	if len(b) < 2 {
		return 0
	}
	return PropertyFlags(binary.BigEndian.Uint16(b)) & propAll
}

// ParseProperties parses an encoded property list, including the flags. It returns an error if bytes remain.
func ParseProperties(b []byte) (Properties, error) {
	var p Properties
	if err := p.Parse(b, propAll); err != nil {
		return Properties{}, err
	}
	return p, nil
}

// Parse parses only the wanted properties of a list. It validates the other properties, but does not store them. After an
// error, the properties are undefined.
func (p *Properties) Parse(b []byte, wanted PropertyFlags) error {
	c := codec{decoder: decoder{b: b}}
	there := c.propertyFlags()
	*p = Properties{Flags: there & wanted}
	for ; there != 0; there &^= there.first() {
		if f := there.first(); wanted&f != 0 {
			p.property(&c, f)
		} else {
			c.skipProperty(f)
		}
	}
	if err := c.end(); err != nil {
		return fmt.Errorf("amqpwire: properties: %w", err)
	}
	return nil
}

// Append appends the flags and exactly the properties in Flags. It returns an error if a value does not fit its property or
// a flag is undefined. After an error it returns dst unchanged.
func (p *Properties) Append(dst []byte) ([]byte, error) {
	if p.Flags&^propAll != 0 {
		return dst, fmt.Errorf("amqpwire: properties: flags %#04x do not belong to a property", uint16(p.Flags&^propAll))
	}
	c := codec{decoder{b: binary.BigEndian.AppendUint16(dst, uint16(p.Flags))}, true}
	for left := p.Flags; left != 0; left &^= left.first() {
		p.property(&c, left.first())
	}
	if c.err != nil {
		return dst, fmt.Errorf("amqpwire: properties: %w", c.err)
	}
	return c.b, nil
}

// propertyFlags reads all flag words. It drops bit 1 of the first word, which does not belong to a property. RabbitMQ
// also ignores this bit. AMQP does not define properties in further words, and their values would have unknown sizes, so
// further words must not contain properties.
func (d *decoder) propertyFlags() PropertyFlags {
	first := d.short()
	word := first
	for n := 1; word&flagContinued != 0; n++ {
		if n == maxFlagWords {
			d.fail(fmt.Errorf("%w: property list has more than %d words of flags", ErrMalformed, maxFlagWords))
			return 0
		}
		if word = d.short(); word&^flagContinued != 0 {
			d.fail(fmt.Errorf("%w: flags %#04x do not belong to a property", ErrMalformed, word))
			return 0
		}
	}
	return PropertyFlags(first) & propAll
}

// first returns the property that is first on the wire.
func (f PropertyFlags) first() PropertyFlags {
	return PropertyFlags(1 << (bits.Len16(uint16(f)) - 1))
}

func (p *Properties) property(c *codec, property PropertyFlags) *codec {
	switch property {
	case PropHeaders:
		return c.table(&p.Headers)
	case PropDeliveryMode:
		return c.octet(&p.DeliveryMode)
	case PropPriority:
		return c.octet(&p.Priority)
	case PropTimestamp:
		return c.longlong(&p.Timestamp)
	}
	return c.rawstr(p.text(property))
}

// text returns the field for a property of type short string.
func (p *Properties) text(property PropertyFlags) *string {
	switch property {
	case PropContentType:
		return &p.ContentType
	case PropContentEncoding:
		return &p.ContentEncoding
	case PropCorrelationID:
		return &p.CorrelationID
	case PropReplyTo:
		return &p.ReplyTo
	case PropExpiration:
		return &p.Expiration
	case PropMessageID:
		return &p.MessageID
	case PropType:
		return &p.Type
	case PropUserID:
		return &p.UserID
	case PropAppID:
		return &p.AppID
	}
	return &p.ClusterID
}

// skipProperty reads a property and ignores its value.
func (d *decoder) skipProperty(property PropertyFlags) {
	switch property {
	case PropHeaders:
		d.table() // validates the content of the table
	case PropDeliveryMode, PropPriority:
		d.octet()
	case PropTimestamp:
		d.longlong()
	default:
		d.shortblock()
	}
}

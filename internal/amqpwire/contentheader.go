package amqpwire

import "fmt"

// contentHeaderSize is the size of a content header without its properties.
const contentHeaderSize = 12

// ContentHeader is the payload of a header frame. The Properties are encoded,
// flags and list, and alias that payload: most of what passes through a broker
// need not be parsed, see [PeekPropertyFlags].
type ContentHeader struct {
	ClassID    uint16
	BodySize   uint64
	Properties []byte
}

// ParseContentHeader parses the payload of a header frame, of the properties no
// more than their presence.
func ParseContentHeader(payload []byte) (ContentHeader, error) {
	d := decoder{b: payload}
	h := ContentHeader{ClassID: d.short()}
	weight := d.short()
	h.BodySize = d.longlong()
	h.Properties = d.b
	switch {
	case d.err != nil:
		return ContentHeader{}, fmt.Errorf("amqpwire: content header: %w", d.err)
	case weight != 0:
		return ContentHeader{}, fmt.Errorf("amqpwire: content header: %w: weight %d", ErrMalformed, weight)
	case len(h.Properties) < 2:
		return ContentHeader{}, fmt.Errorf("amqpwire: content header: %w: no property flags", ErrMalformed)
	}
	return h, nil
}

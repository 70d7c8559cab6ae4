package amqpwire

import "fmt"

// contentHeaderSize is the size of a content header without its properties.
const contentHeaderSize = 12

// ContentHeader is the payload of a header frame. Properties contains the encoded flags and property list, and aliases the
// payload. A broker does not need to parse the properties of most messages; see [PeekPropertyFlags].
type ContentHeader struct {
	ClassID    uint16
	BodySize   uint64
	Properties []byte
}

// ParseContentHeader parses the payload of a header frame. The property flags must be present, but ParseContentHeader does
// not parse the properties.
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
		return ContentHeader{}, fmt.Errorf("amqpwire: content header: %w: weight must be 0: got %d", ErrMalformed, weight)
	case len(h.Properties) < 2:
		return ContentHeader{}, fmt.Errorf("amqpwire: content header: %w: property flags not found", ErrMalformed)
	}
	return h, nil
}

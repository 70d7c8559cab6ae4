package amqpwire

import (
	"encoding/binary"
	"fmt"
)

// Method is an AMQP method with its arguments. Every implementation is a pointer to a struct of this package.
type Method interface {
	// ID returns the method ID.
	ID() MethodID
	// arguments reads or writes the fields. [Parse] and [Append] call it.
	arguments(*codec) *codec
}

// noArguments is embedded in the methods without arguments.
type noArguments struct{}

func (noArguments) arguments(c *codec) *codec { return c }

// MethodID consists of a class in the high 16 bits and a method in the low 16 bits.
type MethodID uint32

// Class returns the class, such as 60 for basic.publish.
func (id MethodID) Class() uint16 { return uint16(id >> 16) }

// Method returns the method within its class, such as 40 for basic.publish.
func (id MethodID) Method() uint16 { return uint16(id) }

// String returns the name in the specification, such as "basic.publish". For an unknown method it returns the numbers,
// such as "method 60.99".
func (id MethodID) String() string {
	if m, known := methods[id]; known {
		return m.name
	}
	return fmt.Sprintf("method %d.%d", id.Class(), id.Method())
}

// UnknownMethodError reports a method that this package does not support.
type UnknownMethodError struct{ ID MethodID }

// Error implements error.
func (e *UnknownMethodError) Error() string {
	return fmt.Sprintf("amqpwire: unknown method %d.%d", e.ID.Class(), e.ID.Method())
}

// PeekMethodID returns the ID of the method in the payload of a method frame, without parsing the arguments.
func PeekMethodID(payload []byte) (MethodID, error) {
	if len(payload) < 4 {
		return 0, fmt.Errorf("amqpwire: %w: method payload must have at least 4 bytes: got %d", ErrMalformed, len(payload))
	}
	return MethodID(binary.BigEndian.Uint32(payload)), nil
}

// ParseMethod parses the payload of a method frame into a pointer such as *[BasicPublish]. The error is an
// [*UnknownMethodError] or wraps [ErrMalformed].
func ParseMethod(payload []byte) (Method, error) { return parseMethod(payload, NewMethod) }

// Parser parses methods like [ParseMethod], but reuses one struct for each frequent method. The result for such a method
// is valid until the parser parses the same method again. The zero Parser is ready for use. It is not safe for concurrent
// use.
type Parser struct {
	publish BasicPublish
	ack     BasicAck
	nack    BasicNack
	reject  BasicReject
}

// Parse parses the payload of a method frame like ParseMethod.
func (p *Parser) Parse(payload []byte) (Method, error) { return parseMethod(payload, p.method) }

func (p *Parser) method(id MethodID) Method {
	switch id {
	case IDBasicPublish:
		return &p.publish
	case IDBasicAck:
		return &p.ack
	case IDBasicNack:
		return &p.nack
	case IDBasicReject:
		return &p.reject
	}
	return NewMethod(id)
}

func parseMethod(payload []byte, method func(MethodID) Method) (Method, error) {
	id, err := PeekMethodID(payload)
	if err != nil {
		return nil, err
	}
	m := method(id)
	if m == nil {
		return nil, &UnknownMethodError{ID: id}
	}
	if err := Parse(payload[4:], m); err != nil {
		return nil, err
	}
	return m, nil
}

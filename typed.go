package reprise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Codec converts between values and the bodies of messages, such as JSONCodec. A Codec must be safe for concurrent use. Package
// reprise does not import Protocol Buffers, so a program that uses them defines their Codec:
//
//	type protobuf struct{}
//
//	func (protobuf) Marshal(v any) ([]byte, error)      { return proto.Marshal(v.(proto.Message)) }
//	func (protobuf) Unmarshal(body []byte, v any) error { return proto.Unmarshal(body, v.(proto.Message)) }
//	func (protobuf) ContentType() string                { return "application/x-protobuf" }
type Codec interface {
	// Marshal returns the body for a value.
	Marshal(v any) ([]byte, error)

	// Unmarshal decodes a body into the value to which v points.
	Unmarshal(body []byte, v any) error

	// ContentType returns the content type of the bodies, for example "application/json".
	ContentType() string
}

// JSONCodec is the Codec of package encoding/json. It does not decode the body null, except into a map, a slice, an interface
// or a pointer.
type JSONCodec struct{}

// Marshal calls json.Marshal.
func (JSONCodec) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal calls json.Unmarshal.
func (JSONCodec) Unmarshal(body []byte, v any) error {
	if t := reflect.TypeOf(v); string(bytes.TrimSpace(body)) == "null" && t != nil && t.Kind() == reflect.Pointer && !nullable(t.Elem()) {
		return errors.New("JSON must not be null")
	}
	return json.Unmarshal(body, v)
}

// ContentType returns "application/json".
func (JSONCodec) ContentType() string { return "application/json" }

// nullable reports whether null is a valid value of a type.
func nullable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Map, reflect.Slice, reflect.Interface, reflect.Pointer:
		return true
	}
	return false
}

// JSON returns a Handler that decodes the body with JSONCodec and passes it to f: see Typed.
func JSON[T any](f func(ctx context.Context, v T, m *Delivery) error) Handler {
	return Typed(JSONCodec{}, f)
}

// Typed returns a Handler that decodes the body as Decode does and passes it to f. If the body cannot be decoded, the message
// is parked immediately, because a retry cannot succeed. Typed ignores the content type, because many publishers do not set
// it. For a queue with several content types, use a Mux with a By that returns the ContentType.
func Typed[T any](c Codec, f func(ctx context.Context, v T, m *Delivery) error) Handler {
	if c == nil || f == nil {
		return HandlerFunc(nil) // NewWorker refuses a nil HandlerFunc
	}
	return HandlerFunc(func(ctx context.Context, m *Delivery) error {
		v, err := Decode[T](c, m)
		if err != nil {
			return err
		}
		return f(ctx, v, m)
	})
}

// Decode decodes the body of m into a new T. If T is a pointer, as the messages of Protocol Buffers are, Decode allocates the
// value to which it points. If T or *T has a method Validate() error, Decode calls it on the decoded value. The error of
// Decode is a *ParkError, so a handler can return it.
func Decode[T any](c Codec, m *Delivery) (T, error) {
	var v, zero T
	target := any(&v)
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer {
		target = reflect.New(t.Elem()).Interface()
		v = target.(T)
	}
	if err := c.Unmarshal(m.Body, target); err != nil {
		return zero, Park(fmt.Errorf("reprise: cannot decode body as %s: %w", reflect.TypeFor[T](), err))
	}
	if err := validate(&v); err != nil {
		return zero, Park(fmt.Errorf("reprise: body is not a valid %s: %w", reflect.TypeFor[T](), err))
	}
	return v, nil
}

// validate calls the method Validate of T or *T, if there is one.
func validate[T any](v *T) error {
	type validator interface{ Validate() error }
	for _, x := range []any{v, *v} {
		if checked, ok := x.(validator); ok {
			return checked.Validate()
		}
	}
	return nil
}

// Encode sets the body of m to the encoded v, and the content type of m. If v has a method MessageType() string, and m.Type is empty,
// Encode also sets the type, by which a Mux selects a route. If v has a method Validate() error, Encode calls it. An error of
// Encode matches ErrInvalidMessage, and m is unchanged.
func (m *Message) Encode(c Codec, v any) error {
	if err := validate(&v); err != nil {
		return fmt.Errorf("%w: not a valid %T: %w", ErrInvalidMessage, v, err)
	}
	body, err := c.Marshal(v)
	if err != nil {
		return fmt.Errorf("%w: cannot encode a %T: %w", ErrInvalidMessage, v, err)
	}
	m.Body, m.ContentType = body, c.ContentType()
	if named, ok := v.(interface{ MessageType() string }); ok && m.Type == "" {
		m.Type = named.MessageType()
	}
	return nil
}

// PublishJSON calls m.Encode with JSONCodec and v, and publishes m as Publish does. For other methods of publishing, call
// Encode.
func (c *Client) PublishJSON(ctx context.Context, m *Message, v any) error {
	if m == nil {
		return c.Publish(ctx, m) // returns the error
	}
	if err := m.Encode(JSONCodec{}, v); err != nil {
		return err
	}
	return c.Publish(ctx, m)
}

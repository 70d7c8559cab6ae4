package reprise

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// JSON makes a Handler of a function that takes the body decoded from JSON into
// a new T, as json.Unmarshal does it. A body that cannot be decoded is parked at
// once, since no retry will change it. The content type is not looked at: many
// publishers set none.
//
// If T or *T has a method Validate() error, it is called on what was decoded, and
// a message that it finds fault with is parked as well. So is null, unless T is a
// map, a slice or an interface.
func JSON[T any](f func(ctx context.Context, v T, m *Message) error) Handler {
	if f == nil {
		return HandlerFunc(nil) // which no worker takes
	}
	return HandlerFunc(func(ctx context.Context, m *Message) error {
		var v T
		if err := json.Unmarshal(m.Body, &v); err != nil {
			return Park(fmt.Errorf("reprise: the body is not the JSON of a %T: %w", v, err))
		}
		if string(bytes.TrimSpace(m.Body)) == "null" && !nullable[T]() {
			return Park(fmt.Errorf("reprise: the body is null, not the JSON of a %T", v))
		}
		if err := validate(&v); err != nil {
			return Park(fmt.Errorf("reprise: the body is not a valid %T: %w", v, err))
		}
		return f(ctx, v, m)
	})
}

// nullable reports whether null is a value of T rather than the lack of one.
func nullable[T any]() bool {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return false
}

// validate asks what was decoded, be its method one of T or of *T.
func validate[T any](v *T) error {
	type validator interface{ Validate() error }
	for _, x := range []any{v, *v} {
		if checked, ok := x.(validator); ok {
			return checked.Validate()
		}
	}
	return nil
}

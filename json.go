package reprise

import (
	"context"
	"encoding/json"
	"fmt"
)

// JSON makes a Handler of a function that takes the body decoded from JSON into
// a new T, as json.Unmarshal does it. A body that cannot be decoded is parked at
// once, since no retry will change it. The content type is not looked at: many
// publishers set none.
//
// If *T has a method Validate() error, it is called on what was decoded, and a
// message that it finds fault with is parked as well.
func JSON[T any](f func(ctx context.Context, v T, m *Message) error) Handler {
	return HandlerFunc(func(ctx context.Context, m *Message) error {
		var v T
		if err := json.Unmarshal(m.Body, &v); err != nil {
			return Park(fmt.Errorf("reprise: the body is not the JSON of a %T: %w", v, err))
		}
		if checked, ok := any(&v).(interface{ Validate() error }); ok {
			if err := checked.Validate(); err != nil {
				return Park(fmt.Errorf("reprise: the body is not a valid %T: %w", v, err))
			}
		}
		return f(ctx, v, m)
	})
}

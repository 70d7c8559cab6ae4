package api

import (
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// Headers are a table with its exact types, in JSON as [tablejson.Encode] writes it.
type Headers topology.Table

// MarshalJSON implements [json.Marshaler].
func (h Headers) MarshalJSON() ([]byte, error) {
	text, err := tablejson.Encode(topology.Table(h))
	return []byte(text), err
}

// UnmarshalJSON implements [json.Unmarshaler].
func (h *Headers) UnmarshalJSON(b []byte) error {
	t, err := tablejson.Decode(string(b))
	*h = Headers(t)
	return err
}

package api

import (
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/topology"
)

// Headers are a table with its exact types, in JSON as [failed.EncodeTable] has it.
type Headers topology.Table

// MarshalJSON implements [json.Marshaler].
func (h Headers) MarshalJSON() ([]byte, error) {
	text, err := failed.EncodeTable(topology.Table(h))
	return []byte(text), err
}

// UnmarshalJSON implements [json.Unmarshaler].
func (h *Headers) UnmarshalJSON(b []byte) error {
	t, err := failed.DecodeTable(string(b))
	*h = Headers(t)
	return err
}

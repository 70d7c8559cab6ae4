package amqpconn

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// Decimal is the type of decimal numbers in AMQP headers.
type Decimal = amqp.Decimal

// clientTable converts a table from EncodeTable to the type of the client.
func clientTable(t topology.Table) amqp.Table { return amqp.Table(t) }

// EncodeTable returns t with types that the client can write, or an error for values that AMQP cannot represent. In
// addition to the types of topology.Table it accepts nested maps, int and uint. It converts int, uint and uint64 to
// int64, because the client would write an int in 32 bits. It returns t itself if no value needs a conversion and none
// is a list.
func EncodeTable(t map[string]any) (topology.Table, error) {
	for _, v := range t {
		if !isScalar(v) {
			t = maps.Clone(t)
			break
		}
	}
	if err := EncodeInPlace(t); err != nil {
		return nil, err
	}
	return t, nil
}

// EncodeInPlace is like EncodeTable, but changes t itself. It does not change nested values.
func EncodeInPlace(t map[string]any) error {
	for k, v := range t {
		if len(k) > math.MaxUint8 {
			return fmt.Errorf("%w: header name %.40q… must have at most 255 bytes: got %d", ErrInvalidMessage, k, len(k))
		}
		if isScalar(v) {
			continue
		}
		e, err := encodeValue(v)
		if err != nil {
			return fmt.Errorf("header %q: %w", k, err)
		}
		t[k] = e
	}
	return nil
}

// isScalar reports whether the client writes v unchanged.
func isScalar(v any) bool {
	switch v.(type) {
	case nil, bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64, string, []byte, time.Time, Decimal:
		return true
	}
	return false
}

func encodeValue(v any) (any, error) {
	if isScalar(v) {
		return v, nil
	}
	switch x := v.(type) {
	case int:
		return int64(x), nil
	case uint, uint64:
		n, _ := amqpvalue.Integer(x)
		if s := fmt.Sprint(x); s != strconv.FormatInt(n, 10) {
			return nil, fmt.Errorf("%w: %s does not fit into AMQP's signed 64 bits", ErrInvalidMessage, s)
		}
		return n, nil
	case topology.Table:
		return encodeNested(x)
	case amqp.Table:
		return encodeNested(x)
	case map[string]any:
		return encodeNested(x)
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			var err error
			if out[i], err = encodeValue(e); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: cannot send a value of type %T (see topology.Table for the types)", ErrInvalidMessage, v)
}

// encodeNested returns a table of the client's type, because the client does not support other types of nested tables. It
// replaces a nil table with an empty table, because the client would write nil as void.
func encodeNested(t map[string]any) (any, error) {
	e, err := EncodeTable(t)
	if e == nil {
		e = topology.Table{}
	}
	return clientTable(e), err
}

// CloneTable returns a deep copy of a delivery's headers.
func CloneTable(t topology.Table) topology.Table {
	out := make(topology.Table, len(t))
	for k, v := range t {
		out[k] = CloneValue(v)
	}
	return out
}

// CloneValue returns a deep copy of a header value.
func CloneValue(v any) any {
	switch x := v.(type) {
	case amqp.Table:
		return CloneTable(topology.Table(x))
	case topology.Table:
		return CloneTable(x)
	case []byte:
		return bytes.Clone(x)
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = CloneValue(e)
		}
		return out
	}
	return v
}

// ReadTable returns the headers of a delivery for reading. It copies them only if they contain nested tables, which
// have the client's type, or lists.
func ReadTable(t topology.Table) topology.Table {
	for _, v := range t {
		switch v.(type) {
		case amqp.Table, []any:
			return CloneTable(t)
		}
	}
	return t
}

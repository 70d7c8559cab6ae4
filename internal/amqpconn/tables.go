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

// Decimal is AMQP's decimal number, as a header has it.
type Decimal = amqp.Decimal

// clientTable is a table that EncodeTable returned, as the client takes it.
func clientTable(t topology.Table) amqp.Table { return amqp.Table(t) }

// EncodeTable returns t as the client can write it, or an error for what AMQP cannot carry.
// Beside the types of topology.Table it takes int and uint, which become 64 bits (the client
// writes an int in 32), and nested maps. It returns t itself where nothing has to change.
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

// EncodeInPlace is EncodeTable for a table of the caller, which is changed. Its nested values
// are not.
func EncodeInPlace(t map[string]any) error {
	for k, v := range t {
		if len(k) > math.MaxUint8 {
			return fmt.Errorf("%w: header name %.40q… has %d bytes: at most 255 are possible", ErrInvalidMessage, k, len(k))
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

// isScalar reports whether the client writes v as it is.
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
	return nil, fmt.Errorf("%w: a value of type %T cannot be sent: see topology.Table for those that can", ErrInvalidMessage, v)
}

// encodeNested returns the client's own type, since it knows no other nested table. A nil
// table would travel as void.
func encodeNested(t map[string]any) (any, error) {
	e, err := EncodeTable(t)
	if e == nil {
		e = topology.Table{}
	}
	return clientTable(e), err
}

// CloneTable returns a copy of a delivery's headers that shares nothing with them.
func CloneTable(t topology.Table) topology.Table {
	out := make(topology.Table, len(t))
	for k, v := range t {
		out[k] = CloneValue(v)
	}
	return out
}

// CloneValue is CloneTable for a value.
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

// ReadTable returns the headers of a delivery for reading. It copies only nested tables,
// which have the client's own type.
func ReadTable(t topology.Table) topology.Table {
	for _, v := range t {
		switch v.(type) {
		case amqp.Table, []any:
			return CloneTable(t)
		}
	}
	return t
}

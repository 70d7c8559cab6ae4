package show

import (
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// Limits of the value of a header on a page.
const (
	maxHeaderDepth = 8
	maxHeaderShown = 8 << 10
)

// HeaderRow is a row of the table of headers.
type HeaderRow struct{ Name, Kind, Value string }

// IsBrokerHeader reports whether Reprise or the broker sets the header with this name. A replay omits most of these
// headers.
func IsBrokerHeader(name string) bool {
	return strings.HasPrefix(name, "x-reprise-") || amqpvalue.IsBrokerHeader(name)
}

// SplitHeaders returns the headers of the application and the headers of Reprise and the broker, each sorted by name.
func SplitHeaders(t topology.Table) (own, theirs []HeaderRow) {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		row := HeaderRow{brief.Visible(name), HeaderKind(t[name]), HeaderValue(t[name])}
		if IsBrokerHeader(name) {
			theirs = append(theirs, row)
		} else {
			own = append(own, row)
		}
	}
	return own, theirs
}

// HeaderKind describes the type of v to users, in one word.
func HeaderKind(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case bool:
		return "boolean"
	case byte, int8, int16, uint16, int32, uint32, int64, int:
		return "integer"
	case float32, float64:
		return "decimal"
	case time.Time:
		return "time"
	case []byte:
		return "bytes"
	case topology.Table, map[string]any:
		return "table"
	case []any:
		return "array"
	case nil:
		return "void"
	}
	return "other"
}

// HeaderValue formats the value of a header. It indents tables and arrays.
func HeaderValue(v any) string {
	var b strings.Builder
	writeHeader(&b, v, 0)
	if b.Len() > maxHeaderShown {
		return strings.ToValidUTF8(b.String()[:maxHeaderShown], "") + "…"
	}
	return b.String()
}

func writeHeader(b *strings.Builder, v any, depth int) {
	if b.Len() > maxHeaderShown {
		return
	}
	indent := strings.Repeat("  ", depth)
	switch v := v.(type) {
	case string:
		b.WriteString(brief.Visible(v))
	case []byte:
		if IsText(v) {
			b.WriteString(brief.Visible(string(v)))
			return
		}
		b.WriteString(hex.EncodeToString(v[:min(len(v), maxHeaderShown)]))
	case time.Time:
		b.WriteString(Exact(v))
	case map[string]any:
		writeHeader(b, topology.Table(v), depth)
	case topology.Table:
		if depth >= maxHeaderDepth {
			b.WriteString("{…}")
			return
		}
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 || depth > 0 {
				b.WriteString("\n" + indent)
			}
			b.WriteString(brief.Visible(name) + ": ")
			writeHeader(b, v[name], depth+1)
		}
		if len(v) == 0 {
			b.WriteString("{}")
		}
	case []any:
		if depth >= maxHeaderDepth {
			b.WriteString("[…]")
			return
		}
		for i, e := range v {
			if i > 0 || depth > 0 {
				b.WriteString("\n" + indent)
			}
			b.WriteString("- ")
			writeHeader(b, e, depth+1)
		}
		if len(v) == 0 {
			b.WriteString("[]")
		}
	case nil:
		b.WriteString("void")
	default:
		fmt.Fprint(b, v)
	}
}

// ParseHeader parses text, the form field of a header, as a value of the given kind. An integer has the type of before,
// the previous value, if it fits into this type.
func ParseHeader(kind, text string, before any) (any, error) {
	switch kind {
	case "text":
		return text, nil
	case "integer":
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not an integer", brief.Quoted(text))
		}
		return sameWidth(n, before), nil
	case "decimal":
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not a number", brief.Quoted(text))
		}
		if _, short := before.(float32); short {
			return float32(f), nil
		}
		return f, nil
	case "boolean":
		yes, err := strconv.ParseBool(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%s is not true or false", brief.Quoted(text))
		}
		return yes, nil
	}
	return nil, fmt.Errorf("cannot edit a header of type %s here (use “reprise failed edit”)", brief.Clip(kind, 20))
}

// sameWidth returns n in the integer type of before if it fits, and otherwise as an int64.
func sameWidth(n int64, before any) any {
	v := reflect.ValueOf(before)
	if v.CanInt() && !v.OverflowInt(n) || v.CanUint() && n >= 0 && !v.OverflowUint(uint64(n)) {
		return reflect.ValueOf(n).Convert(v.Type()).Interface()
	}
	return n
}

// Package hostile draws values that other programs can put into AMQP messages, for property tests.
package hostile

import (
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/topology"
)

// Text draws typical contents: text, invalid UTF-8, NUL and other control characters, quotation marks, and numbers that
// Go or JSON cannot represent.
var Text = rapid.OneOf(
	rapid.String(),
	rapid.StringMatching(`[a-z ]{0,12}`),
	rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 12), func(b []byte) string { return string(b) }),
	rapid.SampledFrom([]string{"", "\x00", "a\x00b", "\xff\xfe", "'\"\\", "{x}$1?1", "<script>", "base64:AA==", "\u2028", "é", "\x7f"}),
	rapid.SampledFrom([]string{`{"n":1e999999999}`, `[-0.0,1e-400]`, `{"a":1,"a":2}`, `{"":{"":null}}`, `"\ud800"`, "\ufeff{}"}),
)

// Time draws any number of seconds, for example milliseconds and microseconds since 1970.
var Time = rapid.Map(rapid.OneOf(
	rapid.Int64(),
	rapid.Int64Range(-1<<40, 1<<40),
	rapid.Int64Range(1_700_000_000, 1_800_000_000),
	rapid.SampledFrom([]int64{0, -1, 1_767_225_600_000, 1_767_225_600_000_000, math.MaxInt64, math.MinInt64, -62_135_596_801, 253_402_300_799, 253_402_300_800}),
), func(seconds int64) time.Time { return time.Unix(seconds, 0) })

var floats = []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64}

var scalars = []*rapid.Generator[any]{
	rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int8().AsAny(), rapid.Uint8().AsAny(), rapid.Int16().AsAny(), rapid.Uint16().AsAny(),
	rapid.Int32().AsAny(), rapid.Uint32().AsAny(), rapid.Int64().AsAny(),
	rapid.OneOf(rapid.Float32(), rapid.Map(rapid.SampledFrom(floats), func(f float64) float32 { return float32(f) })).AsAny(),
	rapid.OneOf(rapid.Float64(), rapid.SampledFrom(floats)).AsAny(),
	rapid.Map(Text, func(s string) any { return []byte(s) }), Time.AsAny(), Text.AsAny(),
	rapid.Custom(func(t *rapid.T) any {
		return amqp.Decimal{Scale: rapid.Uint8().Draw(t, "scale"), Value: rapid.Int32().Draw(t, "value")}
	}),
}

// Value draws a value of any type, with up to depth levels of tables and arrays.
func Value(depth int) *rapid.Generator[any] {
	scalar := rapid.OneOf(scalars...)
	if depth == 0 {
		return scalar
	}
	return rapid.OneOf(scalar, scalar, Table(depth-1).AsAny(), rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return Value(depth - 1) }), 0, 4).AsAny())
}

// Table draws a table with up to depth levels of nested tables and arrays.
func Table(depth int) *rapid.Generator[topology.Table] {
	return rapid.Map(rapid.MapOfN(Text, rapid.Deferred(func() *rapid.Generator[any] { return Value(depth) }), 0, 4),
		func(fields map[string]any) topology.Table { return fields })
}

// marks are headers that Reprise, its presets and the broker read.
var marks = []string{
	topology.HeaderAttempts, topology.HeaderFirstFailed, topology.HeaderErrors, topology.HeaderErrorsDropped, topology.HeaderExchange,
	topology.HeaderRoutingKey, topology.HeaderQueue, topology.HeaderReason, topology.HeaderReplay, "x-death", "x-delivery-count", "x-first-death-queue",
	"x-processing-count", "mb-retries", "mb-exceptions", "CC", "traceparent",
}

// Headers draws headers of any types. In addition to unknown names, it forges headers that Reprise reads, with values of
// the expected shape and of other types.
func Headers() *rapid.Generator[topology.Table] {
	entry := rapid.Custom(func(t *rapid.T) any {
		e := topology.Table{"queue": "orders", "reason": "rejected", "count": int64(1), "time": Time.Draw(t, "time"), "error": Text.Draw(t, "error"), "exchange": "", "routing-keys": []any{Text.Draw(t, "key")}}
		if rapid.Bool().Draw(t, "spoil") {
			e[rapid.SampledFrom([]string{"queue", "reason", "count", "time", "error", "attempt", "duration-ms", "routing-keys"}).Draw(t, "field")] = Value(1).Draw(t, "value")
		}
		return e
	})
	entries := rapid.SliceOfN(entry, 1, 3).AsAny()
	return rapid.Custom(func(t *rapid.T) topology.Table {
		h := Table(2).Draw(t, "others")
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(marks), 0, 6).Draw(t, "marks") {
			h[name] = rapid.OneOf(entries, Time.AsAny(), Text.AsAny(), Value(1)).Draw(t, name)
		}
		return h
	})
}

package failed_test

import (
	"math"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/topology"
)

// anyBytes draws typical contents: text, invalid UTF-8, NUL and other control characters, and quotation marks.
var anyBytes = rapid.Custom(func(t *rapid.T) string {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[a-z ]{0,12}`),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 12), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"", "\x00", "a\x00b", "\xff\xfe", "'\"\\", "{x}$1?1", "<script>", "base64:AA==", "\u2028", "é", "\x7f"}),
	).Draw(t, "text")
})

func anyValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 16
		if depth == 0 {
			kinds = 14
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Int8().Draw(t, "int8")
		case 3:
			return rapid.Uint8().Draw(t, "uint8")
		case 4:
			return rapid.Int16().Draw(t, "int16")
		case 5:
			return rapid.Uint16().Draw(t, "uint16")
		case 6:
			return rapid.Int32().Draw(t, "int32")
		case 7:
			return rapid.Uint32().Draw(t, "uint32")
		case 8:
			return rapid.Int64().Draw(t, "int64")
		case 9:
			return rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Copysign(0, -1))})).Draw(t, "float32")
		case 10:
			return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Copysign(0, -1)})).Draw(t, "float64")
		case 11:
			return []byte(anyBytes.Draw(t, "bytes"))
		case 12:
			return time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "time"), 0)
		case 13:
			return amqp.Decimal{Scale: rapid.Uint8().Draw(t, "scale"), Value: rapid.Int32().Draw(t, "value")}
		case 14:
			return anyTable(depth-1).Draw(t, "table")
		}
		return rapid.SliceOfN(anyValue(depth-1), 0, 4).Draw(t, "array")
	})
}

func anyTable(depth int) *rapid.Generator[topology.Table] {
	return rapid.Custom(func(t *rapid.T) topology.Table {
		return rapid.MapOfN(anyBytes, rapid.OneOf(anyValue(depth), rapid.Map(anyBytes, func(s string) any { return s })), 0, 4).Draw(t, "fields")
	})
}

var anyTime = rapid.Custom(func(t *rapid.T) time.Time {
	return time.UnixMilli(rapid.Int64Range(1_700_000_000_000, 1_800_000_000_000).Draw(t, "ms"))
})

var anyProperties = rapid.Custom(func(t *rapid.T) failed.Properties {
	s := func(name string) string { return anyBytes.Draw(t, name) }
	p := failed.Properties{
		ContentType: s("content type"), ContentEncoding: s("encoding"), CorrelationID: s("correlation"), ReplyTo: s("reply to"),
		MessageID: s("id"), Type: s("type"), AppID: s("app"), UserID: s("user"), Expiration: s("expiration"),
		Priority: rapid.Byte().Draw(t, "priority"), Exchange: s("exchange"), RoutingKey: s("key"),
	}
	if rapid.Bool().Draw(t, "stamped") {
		p.Timestamp = anyTime.Draw(t, "timestamp").Truncate(time.Second)
	}
	return p
})

var anyContent = rapid.Custom(func(t *rapid.T) failed.Content {
	return failed.Content{
		Body:       []byte(anyBytes.Draw(t, "body")),
		Headers:    anyTable(2).Draw(t, "headers"),
		Properties: anyProperties.Draw(t, "properties"),
	}
})

var anyAttempt = rapid.Custom(func(t *rapid.T) reprise.AttemptError {
	return reprise.AttemptError{
		Attempt: rapid.IntRange(0, math.MaxInt32).Draw(t, "attempt"), Error: anyBytes.Draw(t, "error"), Host: anyBytes.Draw(t, "host"),
		Duration: time.Duration(rapid.Int64().Draw(t, "duration")), Time: anyTime.Draw(t, "time").Truncate(time.Second),
	}
})

var anyArrival = rapid.Custom(func(t *rapid.T) failed.Arrival {
	m := failed.Message{
		Queue: "q" + anyBytes.Draw(t, "queue"), FailedQueue: "f" + anyBytes.Draw(t, "failed queue"),
		Exchange: anyBytes.Draw(t, "exchange"), RoutingKey: anyBytes.Draw(t, "key"),
		Attempts: rapid.IntRange(0, math.MaxInt32).Draw(t, "attempts"), ErrorsDropped: rapid.IntRange(0, 100).Draw(t, "dropped"),
		Errors: rapid.SliceOfN(anyAttempt, 0, 3).Draw(t, "errors"),
		Reason: anyBytes.Draw(t, "reason"), Error: anyBytes.Draw(t, "error"),
		FirstFailed: anyTime.Draw(t, "first"), LastFailed: anyTime.Draw(t, "last"),
		Content: anyContent.Draw(t, "content"),
	}
	return failed.Arrival{Message: m}
})

// same makes cmp.Diff compare times by instant and floats by bits (NaN equals NaN, -0 differs from 0), and treat nil as
// empty.
var same = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
}

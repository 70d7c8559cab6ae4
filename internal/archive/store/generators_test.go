package store_test

import (
	"math"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/testkit/hostile"
	"github.com/reprisemq/reprise/topology"
)

var anyBytes = hostile.Text

func anyTable(depth int) *rapid.Generator[topology.Table] { return hostile.Table(depth) }

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
		p.Timestamp = hostile.Time.Draw(t, "timestamp")
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

var anyArrival = rapid.Custom(func(t *rapid.T) failed.Arrived {
	m := failed.Message{
		Queue: "q" + anyBytes.Draw(t, "queue"), FailedQueue: "f" + anyBytes.Draw(t, "failed queue"),
		Exchange: anyBytes.Draw(t, "exchange"), RoutingKey: anyBytes.Draw(t, "key"),
		Attempts: rapid.IntRange(0, math.MaxInt32).Draw(t, "attempts"), ErrorsDropped: rapid.IntRange(0, 100).Draw(t, "dropped"),
		Errors: rapid.SliceOfN(anyAttempt, 0, 3).Draw(t, "errors"),
		Reason: anyBytes.Draw(t, "reason"), Error: anyBytes.Draw(t, "error"),
		FirstFailed: anyTime.Draw(t, "first"), LastFailed: anyTime.Draw(t, "last"),
		Content: anyContent.Draw(t, "content"),
	}
	return failed.Arrived{Message: m}
})

// same makes cmp.Diff compare times by instant and floats by bits (NaN equals NaN, -0 differs from 0), and treat nil as
// empty.
var same = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
}

package oteltrace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"

	"github.com/reprisemq/reprise"
)

type refused struct{}

func (*refused) Error() string { return "card refused" }

const typeRefused = "*oteltrace_test.refused"

var retryAfter = reprise.RetryAfter(90*time.Second, &refused{})

// outcomes maps kinds of errors to the expected attributes of a span.
var outcomes = map[string]struct {
	err  error
	want map[string]string
}{
	"nil":             {nil, map[string]string{"reprise.outcome": "done"}},
	"an error":        {&refused{}, map[string]string{"reprise.outcome": "retry", "error.type": typeRefused}},
	"a wrapped error": {fmt.Errorf("charge: %w", &refused{}), map[string]string{"reprise.outcome": "retry", "error.type": typeRefused}},
	"RetryAfter":      {retryAfter, map[string]string{"reprise.outcome": "retry", "reprise.retry_after": "90", "error.type": typeRefused}},
	"PauseFor": {reprise.PauseFor(time.Minute, &refused{}), map[string]string{
		"reprise.outcome": "retry", "reprise.retry_after": "60", "reprise.pause_for": "60", "error.type": typeRefused,
	}},
	"Park":                 {reprise.Park(&refused{}), map[string]string{"reprise.outcome": "park", "error.type": typeRefused}},
	"Park of nil":          {reprise.Park(nil), map[string]string{"reprise.outcome": "park", "error.type": "*reprise.ParkError"}},
	"Annotate":             {reprise.Annotate(reprise.Park(&refused{}), map[string]any{"step": 2}), map[string]string{"reprise.outcome": "park", "error.type": typeRefused}},
	"Park of a RetryAfter": {reprise.Park(retryAfter), map[string]string{"reprise.outcome": "park", "error.type": typeRefused}},
	"RetryAfter of a Park": {reprise.RetryAfter(time.Second, reprise.Park(&refused{})), map[string]string{
		"reprise.outcome": "retry", "reprise.retry_after": "1", "error.type": typeRefused,
	}},
	"joined, one parks": {errors.Join(retryAfter, reprise.Park(nil)), map[string]string{"reprise.outcome": "park", "error.type": "*errors.joinError"}},
	"joined, the longest delay": {errors.Join(errTest, retryAfter, reprise.PauseFor(time.Second, nil)), map[string]string{
		"reprise.outcome": "retry", "reprise.retry_after": "90", "reprise.pause_for": "1", "error.type": "*errors.joinError",
	}},
	"Timeout": {fmt.Errorf("%w (1s): %w", reprise.ErrAttemptTimeout, context.DeadlineExceeded), map[string]string{
		"reprise.outcome": "retry", "error.type": "timeout",
	}},
}

func TestMiddlewareRecordsOutcomes(t *testing.T) {
	for name, tc := range outcomes {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			err := r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, returning(tc.err))
			if !errors.Is(err, tc.err) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
			s := r.only(t)
			got := attributes(s.Attributes())
			for key := range got {
				if strings.HasPrefix(key, "messaging.") || key == "reprise.attempt" {
					delete(got, key)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if tc.err == nil {
				if s.Status().Code != codes.Unset {
					t.Errorf("status: got %+v, want Unset", s.Status())
				}
			} else if s.Status().Code != codes.Error || s.Status().Description != tc.err.Error() {
				t.Errorf("status: got %+v, want Error with %v", s.Status(), tc.err)
			}
		})
	}
}

type unreadable struct{}

func (*unreadable) Error() string { panic("a nil pointer") }

// If the methods of an error panic, the worker behaves in the same way with and without tracing.
func TestMiddlewareRecoversFromPanickingError(t *testing.T) {
	r := newRecorder()
	bad := reprise.Park(&unreadable{})
	if err := r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, returning(bad)); !errors.Is(err, bad) {
		t.Errorf("got %T, want the same error", err)
	}
	if s := r.only(t); s.Status().Code != codes.Error || attributes(s.Attributes())["reprise.outcome"] != "park" {
		t.Errorf("got status %+v and attributes %v, want Error and outcome park", s.Status(), s.Attributes())
	}
}

func TestMiddlewareTruncatesErrorText(t *testing.T) {
	r := newRecorder()
	_ = r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, returning(errors.New(strings.Repeat("ä", 1<<20)+"\xff")))
	if d := r.only(t).Status().Description; len(d) > 5000 || len(d) < 4000 || !utf8.ValidString(d) {
		t.Errorf("description: got %d bytes, want 4000 to 5000 of UTF-8", len(d))
	}
}

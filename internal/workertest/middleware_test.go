package workertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

func named(name string, calls *[]string) reprise.Middleware {
	return func(next reprise.Handler) reprise.Handler {
		return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			*calls = append(*calls, name)
			err := next.Handle(ctx, m)
			*calls = append(*calls, fmt.Sprintf("%s: %v", name, err))
			return err
		})
	}
}

func TestFirstMiddlewareIsOutermost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var calls []string
		c := dial()
		start(t, c, reprise.WorkerConfig{
			Queue: "work", Policy: reprise.Policy{MaxAttempts: 1},
			Middleware: []reprise.Middleware{named("outer", &calls), named("inner", &calls)},
			Handler:    newScript(func(*reprise.Delivery) error { return errScripted }),
		})
		r.publish("", "work", amqp.Publishing{})
		c.log.wait(t, "parked", 1)
		want := []string{"outer", "inner", "inner: scripted failure", "outer: scripted failure"}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("calls: -want +got:\n%s", diff)
		}
	})
}

func TestTimeoutCancelsContextOfAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		clock := newClock()
		h := reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			clock.tick()
			if m.Attempt == 3 {
				return nil
			}
			<-ctx.Done()
			clock.tick()
			if m.Attempt == 2 {
				return reprise.RetryAfter(time.Hour, ctx.Err())
			}
			return ctx.Err()
		})
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Middleware: []reprise.Middleware{reprise.Timeout(20 * time.Second)}})
		r.publish("", "work", amqp.Publishing{})
		time.Sleep(2 * time.Hour)
		at := clock.ticks()
		if len(at) != 5 || at[1]-at[0] != 20*time.Second || at[3]-at[2] != 20*time.Second || at[4]-at[3] < time.Hour {
			t.Errorf("times of the starts and ends: got %v, want attempts of 20s, and a third attempt after an hour", at)
		}
	})
}

func TestTimeoutReturnsErrAttemptTimeout(t *testing.T) {
	t.Parallel()
	wait := reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		<-ctx.Done()
		return fmt.Errorf("query: %w", ctx.Err())
	})
	h := reprise.Timeout(time.Millisecond)(wait)
	err := h.Handle(t.Context(), &reprise.Delivery{})
	if !errors.Is(err, reprise.ErrAttemptTimeout) || !errors.Is(err, context.DeadlineExceeded) ||
		err.Error() != "reprise: attempt timed out (1ms): query: context deadline exceeded" {
		t.Errorf("got %v, want ErrAttemptTimeout", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reprise.Timeout(time.Hour)(wait).Handle(ctx, &reprise.Delivery{}); errors.Is(err, reprise.ErrAttemptTimeout) {
		t.Errorf("canceled parent context: got %v, want an error other than ErrAttemptTimeout", err)
	}
	late := reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		<-ctx.Done()
		return nil
	})
	if err := reprise.Timeout(time.Millisecond)(late).Handle(t.Context(), &reprise.Delivery{}); err != nil {
		t.Errorf("late success: %v", err)
	}
}

func TestImmediateRetriesInProcess(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		results []error
		runs    int
		want    error
	}{
		{"success after two failures", []error{errScripted, errScripted, nil}, 3, nil},
		{"all runs fail", []error{errScripted, errScripted, errScripted, nil}, 3, errScripted},
		{"park is final", []error{errScripted, reprise.Park(errScripted)}, 2, errScripted},
		{"retry after is final", []error{reprise.RetryAfter(time.Hour, errScripted)}, 1, errScripted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runs := 0
			h := reprise.Immediate(2, time.Nanosecond)(reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				if string(m.Body) != "body" || len(m.Headers) != 1 {
					t.Errorf("run %d must not see changes of the previous run: got body %q, headers %v", runs, m.Body, m.Headers)
				}
				copy(m.Body, "done")
				m.Headers["more"] = true
				runs++
				return tc.results[runs-1]
			}))
			err := h.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{Body: []byte("body"), Headers: map[string]any{"k": 1}}})
			if runs != tc.runs || !errors.Is(err, tc.want) {
				t.Errorf("got %d runs, error %v; want %d, %v", runs, err, tc.runs, tc.want)
			}
		})
	}
}

func TestImmediateStopsWhenContextIsCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	h := reprise.Immediate(1000, time.Hour)(reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
		runs++
		cancel()
		return errScripted
	}))
	if err := h.Handle(ctx, &reprise.Delivery{}); !errors.Is(err, errScripted) || runs != 1 {
		t.Errorf("got %d runs, error %v; want 1, %v", runs, err, errScripted)
	}
}

type order struct {
	ID    int `json:"id"`
	Cents int `json:"cents"`
}

func (o *order) Validate() error {
	if o.Cents < 0 {
		return errors.New("cents must not be negative")
	}
	return nil
}

func TestJSONDecodesOrParks(t *testing.T) {
	t.Parallel()
	var got order
	h := reprise.JSON(func(_ context.Context, o order, m *reprise.Delivery) error {
		if m == nil {
			t.Error("message is nil")
		}
		got = o
		return errScripted
	})
	if err := h.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{Body: []byte(`{"id": 7, "cents": 1250, "more": null}`)}}); err != errScripted || got != (order{7, 1250}) {
		t.Errorf("got %+v, %v; want %+v, %v", got, err, order{7, 1250}, errScripted)
	}
	for body, text := range map[string]string{
		``:                          "cannot decode body as workertest.order",
		` null `:                    "cannot decode body as workertest.order: JSON must not be null",
		`{"id": "seven"}`:           "cannot decode body as workertest.order",
		`{"id": 7} {}`:              "cannot decode body as workertest.order",
		`{"id": 7, "cents": -1}`:    "body is not a valid workertest.order: cents must not be negative",
		"\xff\xfe{\x00\"\x00i\x00d": "cannot decode body as workertest.order",
	} {
		got = order{}
		err := h.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{Body: []byte(body)}})
		if _, park := errors.AsType[*reprise.ParkError](err); !park || !strings.Contains(err.Error(), text) || got != (order{}) {
			t.Errorf("body %q: got %v, want ParkError", body, err)
		}
	}
}

func TestJSONOfPointersAndMaps(t *testing.T) {
	t.Parallel()
	pointer := reprise.JSON(func(context.Context, *order, *reprise.Delivery) error {
		t.Error("handler was called")
		return nil
	})
	for _, body := range []string{`null`, `{"cents": -1}`} {
		if _, park := errors.AsType[*reprise.ParkError](pointer.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{Body: []byte(body)}})); !park {
			t.Errorf("body %s: got no ParkError", body)
		}
	}
	anything := reprise.JSON(func(_ context.Context, v map[string]any, _ *reprise.Delivery) error {
		if v != nil {
			t.Errorf("decoded null: got %v, want nil", v)
		}
		return nil
	})
	if err := anything.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{Body: []byte("null")}}); err != nil {
		t.Error(err)
	}
}

package testkit

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNameIsUniqueAndContainsTestName(t *testing.T) {
	t.Run("with spaces/and slashes", func(t *testing.T) {
		a, b := Name(t, "work"), Name(t, "work")
		if a == b {
			t.Errorf("names must differ: got %s twice", a)
		}
		if want := "work.TestNameIsUniqueAndContainsTestName-with_spaces-and_slashes."; !strings.HasPrefix(a, want) {
			t.Errorf("name must begin with %q: got %q", want, a)
		}
	})
	t.Run(strings.Repeat("long", 100), func(t *testing.T) {
		if name := Name(t, "q"); len(name) > 200 {
			t.Errorf("name must have at most 200 bytes: got %d", len(name))
		}
	})
}

func TestEventually(t *testing.T) {
	tests := []struct {
		name      string
		condition func(t testing.TB, after time.Time)
		want      string // expected in the failure; "" means no failure
	}{
		{"true later", func(t testing.TB, after time.Time) {
			Eventually(t, 10*time.Second, func() bool { return !time.Now().Before(after) })
		}, ""},
		{"never true", func(t testing.TB, _ time.Time) {
			Eventually(t, 10*time.Second, func() bool { return false })
		}, "condition not met after 10s"},
		{"no error later", func(t testing.TB, after time.Time) {
			Eventually(t, 10*time.Second, func() error {
				if left := time.Until(after); left > 0 {
					return fmt.Errorf("%v left", left)
				}
				return nil
			})
		}, ""},
		{"always an error", func(t testing.TB, _ time.Time) {
			Eventually(t, 10*time.Second, func() error { return errors.New("got 2 of 3") })
		}, "condition not met after 10s: got 2 of 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				got := outcome(t, func(t testing.TB) { tt.condition(t, start.Add(9*time.Second)) })
				if got.fatal != tt.want {
					t.Errorf("got failure %q, want %q", got.fatal, tt.want)
				}
				if waited := time.Since(start); waited < 9*time.Second || waited > 10*time.Second {
					t.Errorf("wait of Eventually: got %v, want 9s to 10s", waited)
				}
			})
		})
	}
}

func TestRabbitMQFromEnvironment(t *testing.T) {
	t.Setenv("REPRISE_TEST_RABBITMQ_310", "amqp://guest:guest@127.0.0.1:5999/")
	t.Setenv("REPRISE_TEST_RABBITMQ_43", "")
	all := RabbitMQs()
	if len(all) < 2 {
		t.Fatalf("versions: got %v, want at least two", all)
	}
	want := Target{Name: "rabbitmq-3.10", URL: "amqp://guest:guest@127.0.0.1:5999/", IsRabbitMQ: true, Version: "3.10"}
	if all[0] != want {
		t.Errorf("got %v, want %v", all[0], want)
	}
	if got := outcome(t, all[0].Require); got != (ending{}) {
		t.Errorf("Require of version 3.10: got %+v, want no failure and no skip", got)
	}
	got := outcome(t, all[1].Require)
	if want := "needs RabbitMQ 4.3 (set REPRISE_TEST_RABBITMQ_43 or run make test)"; got.skip != want {
		t.Errorf("version 4.3 is not available: got %q, want %q", got.skip, want)
	}
}

// An ending contains the messages with which a test failed or was skipped.
type ending struct{ fatal, skip string }

// outcome runs test and returns its ending. The ending does not affect t.
func outcome(t *testing.T, test func(t testing.TB)) ending {
	t.Helper()
	tb := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(tb)
	}()
	<-done
	return tb.ending
}

type recorder struct {
	testing.TB
	ending
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

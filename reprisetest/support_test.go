package reprisetest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/reprisetest"
)

// fake is a testing.TB that records failures.
type fake struct {
	real     testing.TB
	mu       sync.Mutex
	cleanups []func()
	failures []string
	logs     []string
}

// try runs a test that is expected to fail, and returns the fake with the output.
func try(real testing.TB, f func(t *fake)) *fake {
	t := &fake{real: real}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(t)
	}()
	<-ended
	for len(t.cleanups) > 0 {
		last := t.cleanups[len(t.cleanups)-1]
		t.cleanups = t.cleanups[:len(t.cleanups)-1]
		last()
	}
	return t
}

func (t *fake) Helper() {}

// TB returns the real test.
func (t *fake) TB() testing.TB { return t.real }

func (t *fake) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *fake) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

func (t *fake) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, fmt.Sprintf(format, args...))
}

func (t *fake) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *fake) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *fake) String() string { return strings.Join(t.failures, "\n") }

var errScripted = errors.New("the till is busy")

// handler converts f to a handler.
func handler(f func(m *reprise.Delivery) error) reprise.Handler {
	return reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error { return f(m) })
}

// failing returns a handler that fails in the first n attempts of each message.
func failing(n int) reprise.Handler {
	return handler(func(m *reprise.Delivery) error {
		if m.Attempt <= n {
			return errScripted
		}
		return nil
	})
}

func every(d time.Duration, attempts int) reprise.Policy {
	return reprise.Policy{MaxAttempts: attempts, Backoff: backoff.Fixed(d)}
}

func order(id string) *reprise.Message {
	return &reprise.Message{RoutingKey: "orders", MessageID: id, Body: []byte("order " + id)}
}

// raw connects to a broker with a plain AMQP client. The caller must close the connection.
func raw(t testing.TB, b *reprisetest.Broker) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, err := amqp.DialConfig(b.URL(), amqp.Config{Heartbeat: time.Hour, Dial: func(network, addr string) (net.Conn, error) {
		return b.DialContext(t.Context(), network, addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return conn, ch
}

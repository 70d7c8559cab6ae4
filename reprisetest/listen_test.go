package reprisetest_test

import (
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// Clients without this package can use the same broker.
func TestListen(t *testing.T) {
	t.Parallel()
	b := reprisetest.Listen(t)
	w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: failing(1), Policy: every(30*time.Millisecond, 2)})
	dial := func() (*amqp.Connection, *amqp.Channel) {
		t.Helper()
		conn, err := amqp.Dial(b.URL())
		if err != nil {
			t.Fatal(err)
		}
		ch, err := conn.Channel()
		if err == nil {
			err = ch.Confirm(false)
		}
		if err != nil {
			t.Fatal(err)
		}
		return conn, ch
	}
	publish := func(ch *amqp.Channel, queue, id string) bool {
		t.Helper()
		confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent})
		if err != nil {
			t.Fatal(err)
		}
		return confirm.Wait()
	}

	conn, ch := dial()
	if !publish(ch, "orders", "1") {
		t.Error("message was not confirmed")
	}
	b.Drain(t)
	if got := w.Attempts().Delays(); len(got) != 1 || got[0] < 30*time.Millisecond {
		t.Errorf("delays: got %v, want one of at least 30ms", got)
	}

	b.Declare(t, queues(topology.Queue{Name: "rest"}))
	b.Nack(1)
	if publish(ch, "rest", "2") || !publish(ch, "rest", "3") {
		t.Error("broker did not refuse exactly one message")
	}
	b.LoseConfirms(1)
	if publish(ch, "rest", "4") || !conn.IsClosed() {
		t.Error("confirm was not lost")
	}
	if n := b.Depth(t, "rest"); n != 2 {
		t.Errorf("queue has %d messages, want 2 (one of them unconfirmed)", n)
	}

	conn, _ = dial()
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	b.Refuse(time.Hour)
	b.Cut()
	<-closed
	if _, err := amqp.Dial(b.URL()); err == nil {
		t.Error("connection was not refused")
	}
	b.Refuse(-1)
	conn, _ = dial()
	conn.Close()
	b.Publish(t, order("5"))
	w.Await(t, len(w.Attempts())+1)
	b.Drain(t)
	if n := b.Depth(t, "orders"); n != 0 {
		t.Errorf("queue has %d messages, want 0", n)
	}
}

// The broker responds to other protocols with the AMQP protocol header.
func TestListenRejectsOtherProtocols(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(reprisetest.Listen(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, greeting := range []string{"GET / HTTP/1.1\r\n\r\n", "AMQP\x01\x01\x00\x0a", "\x09\x00"} {
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, greeting)
		_ = conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(conn)
		if want := "AMQP\x00\x00\x09\x01"; err != nil || len(greeting) >= 8 && string(got) != want {
			t.Errorf("greeting %q: got %q (%v), want %q", greeting, got, err, want)
		}
		conn.Close()
	}
}

// In real time, Drain returns at a moment when no message is in flight.
func TestDrainInRealTime(t *testing.T) {
	t.Parallel()
	b := reprisetest.New(t)
	w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Concurrency: 4, Handler: failing(2), Policy: every(time.Millisecond, 3)})
	for range 50 {
		b.Publish(t, order("a"), order("b"), order("c"))
		before := len(w.Attempts())
		b.Drain(t)
		b.Advance(0)
		if got := w.Attempts(); len(got)%9 != 0 {
			t.Fatalf("attempts when Drain returns: got %d (%d before), want a multiple of 9", len(got), before)
		}
	}
	if n := len(w.Attempts()); n != 50*9 {
		t.Errorf("attempts: got %d, want %d", n, 50*9)
	}
}

// A message that moves between queues is briefly in neither queue. Drain must not return at such a moment.
func TestDrainInRealTimeFollowsMovingMessages(t *testing.T) {
	t.Parallel()
	b := reprisetest.New(t)
	b.Declare(t, queues(
		passing("a", "b", 0), passing("b", "c", time.Millisecond), passing("c", "d", 0), passing("d", "end", time.Millisecond),
		topology.Queue{Name: "end"}))
	for n := range 200 {
		b.Publish(t, &reprise.Message{RoutingKey: "a"})
		b.Drain(t)
		if got := b.Depth(t, "end"); got != n+1 {
			t.Fatalf("Drain returned with %d messages in the last queue, want %d", got, n+1)
		}
	}
}

func TestDrainInRealTimeTimesOut(t *testing.T) {
	t.Parallel()
	got := try(t, func(f *fake) {
		b := reprisetest.Config{Timeout: 2 * time.Second}.New(f)
		b.Work(f, retrying(time.Hour))
		b.Publish(f, order("1"))
		b.Drain(f)
	})
	if !strings.Contains(got.String(), "messages are still in flight:\n\torders.wait.") {
		t.Errorf("failure must contain \"messages are still in flight\" and orders.wait: got\n%s", got)
	}
}

func TestListenFailsInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := try(t, func(f *fake) { reprisetest.Listen(f) })
		if !strings.HasPrefix(got.String(), "reprisetest: Listen must not be called in a bubble") {
			t.Errorf("failure must begin with \"reprisetest: Listen must not be called in a bubble\": got %q", got)
		}
	})
}

func TestServer(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, retrying(time.Hour))
		r := httptest.NewRequest("GET", "/api/queues/%2F/orders", nil)
		r.RemoteAddr = "127.0.0.1:1" // the user guest has access only from this host
		r.SetBasicAuth("guest", "guest")
		w := httptest.NewRecorder()
		b.Server().Management().ServeHTTP(w, r)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"consumers":1`) {
			t.Errorf("response: got %d %s, want 200 with 1 consumer", w.Code, w.Body)
		}
		if _, err := b.Server().DialContext(t.Context(), "", ""); err != nil && !errors.Is(err, reprise.ErrClosed) {
			t.Error(err)
		}
	})
}

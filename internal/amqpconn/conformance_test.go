package amqpconn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// The tests in this file specify the requirements for an implementation of this package. They use only the exported
// API.

// clients are the parameters of the URL that select an AMQP client.
var clients = map[string]string{"native": "", "amqp091-go": "?client=amqp091-go"}

// eachClient calls test with a connection of each client.
func eachClient(t *testing.T, test func(t *testing.T, link *amqpconn.Link, conn *amqpconn.Conn)) {
	t.Helper()
	for name, parameters := range clients {
		t.Run(name, func(t *testing.T) {
			link, conn := connect(t, parameters)
			test(t, link, conn)
		})
	}
}

// connect returns a connection to a new broker in memory.
func connect(t *testing.T, parameters string) (*amqpconn.Link, *amqpconn.Conn) {
	t.Helper()
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := amqpconn.ParseURL("amqp://guest:guest@memory" + parameters)
	if err != nil {
		t.Fatal(err)
	}
	var tasks amqpconn.Tasks
	link := amqpconn.NewLink(amqpconn.LinkConfig{
		Name: t.Name(), Logger: slog.New(slog.DiscardHandler), Dial: b.DialContext,
		Timeout: time.Minute, Reconnect: backoff.Fixed(time.Millisecond),
	}, addresses.Rotation(), &tasks)
	conn, err := link.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := tasks.Go(func() { link.Run(ctx, conn) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tasks.Close(context.Background(), cancel); err != nil {
			t.Error(err)
		}
		_ = b.Shutdown(context.Background())
	})
	return link, conn
}

func open(t *testing.T, conn *amqpconn.Conn) *amqpconn.Channel {
	t.Helper()
	ch, err := conn.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func declare(t *testing.T, conn *amqpconn.Conn, queues ...topology.Queue) {
	t.Helper()
	for _, q := range queues {
		err := conn.Do(t.Context(), func(ch *amqpconn.Channel) error { return ch.DeclareQueue(t.Context(), q, false) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

func confirming(t *testing.T, conn *amqpconn.Conn) *amqpconn.Confirming {
	t.Helper()
	s, err := conn.OpenConfirming(100)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// results publishes a message to each queue, and returns the results.
func results(t *testing.T, s *amqpconn.Confirming, queues ...string) (errs []error) {
	t.Helper()
	var all []*amqpconn.Publication
	for i, queue := range queues {
		p := &amqpconn.Publication{RoutingKey: queue, Message: &amqpconn.Message{MessageID: fmt.Sprint(i)}}
		if err := s.Publish(p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	s.Flush()
	for _, p := range all {
		<-p.Answered()
		errs = append(errs, s.Result(p))
	}
	return errs
}

func TestConfirmingResults(t *testing.T) {
	eachClient(t, func(t *testing.T, _ *amqpconn.Link, conn *amqpconn.Conn) {
		declare(t, conn, topology.Queue{Name: "q"}, topology.Queue{Name: "full", Args: topology.Table{"x-max-length": 0, "x-overflow": "reject-publish"}})
		var queues []string
		for range 30 {
			queues = append(queues, "q", "full", "missing")
		}
		for i, err := range results(t, confirming(t, conn), queues...) {
			returned, isReturned := errors.AsType[*amqpconn.Return](err)
			switch queues[i] {
			case "q":
				if err != nil {
					t.Errorf("message %d: got %v, want a confirm", i, err)
				}
			case "full":
				if !errors.Is(err, amqpconn.ErrNacked) {
					t.Errorf("message %d to a full queue: got %v, want ErrNacked", i, err)
				}
			default:
				if !isReturned || returned.Code != 312 {
					t.Errorf("message %d to a missing queue: got %v, want a return", i, err)
				}
			}
		}
	})
}

// A closed channel does not count as an answer, and Err returns the reason.
func TestConfirmingOnClosedChannel(t *testing.T) {
	eachClient(t, func(t *testing.T, _ *amqpconn.Link, conn *amqpconn.Conn) {
		declare(t, conn, topology.Queue{Name: "q"})
		s := confirming(t, conn)
		p := &amqpconn.Publication{Exchange: "missing", RoutingKey: "q", Message: &amqpconn.Message{}}
		if err := s.Publish(p); err != nil {
			t.Fatal(err)
		}
		s.Flush()
		<-p.Answered()
		refusal, ok := amqpconn.RefusedChannel(s.Result(p))
		if !ok || refusal.Code != amqpconn.NotFound || !strings.Contains(refusal.Text, "missing") {
			t.Errorf("refusal: got %v, %t; want not found for the missing exchange", refusal, ok)
		}
		if !s.IsClosed() {
			t.Error("channel is open")
		}
		if err := s.Publish(p); !errors.Is(err, amqpconn.ErrNotWritten) {
			t.Errorf("Publish on the closed channel: got %v, want ErrNotWritten", err)
		}
		if err := results(t, confirming(t, conn), "q")[0]; err != nil {
			t.Errorf("result on another channel: %v", err)
		}
	})
}

func TestConfirmingOnLostConnection(t *testing.T) {
	eachClient(t, func(t *testing.T, link *amqpconn.Link, conn *amqpconn.Conn) {
		declare(t, conn, topology.Queue{Name: "q"})
		s := confirming(t, conn)
		p := &amqpconn.Publication{RoutingKey: "q", Message: &amqpconn.Message{}}
		if err := s.Publish(p); err != nil {
			t.Fatal(err)
		}
		s.Flush()
		conn.End(0)
		<-p.Answered()
		if err := s.Result(p); errors.Is(err, amqpconn.ErrNacked) { // it may have been confirmed earlier
			t.Errorf("result: got %v, want any result except ErrNacked", err)
		}
		next, err := link.Get(t.Context())
		if err != nil || next.Generation() != 2 {
			t.Fatalf("cannot get the next connection: %v", err)
		}
		select {
		case <-conn.Lost():
		default:
			t.Error("connection is not lost")
		}
	})
}

func TestConsumeAndSettle(t *testing.T) {
	eachClient(t, func(t *testing.T, _ *amqpconn.Link, conn *amqpconn.Conn) {
		declare(t, conn, topology.Queue{Name: "q"})
		sent := &amqpconn.Message{
			Headers:     topology.Table{"n": int64(1), "table": topology.Table{"deep": []any{"x", topology.Table{"y": int32(2)}}}},
			ContentType: "text/plain", ContentEncoding: "none", CorrelationID: "c", ReplyTo: "r", Expiration: "60000", MessageID: "id", Type: "t",
			UserID: "guest", AppID: "a", Timestamp: time.Unix(1_700_000_000, 0), Priority: 3, Body: []byte("body"),
		}
		var err error
		if sent.Headers, err = amqpconn.EncodeTable(sent.Headers); err != nil {
			t.Fatal(err)
		}
		s := confirming(t, conn)
		p := &amqpconn.Publication{RoutingKey: "q", Message: sent}
		if err := s.Publish(p); err != nil {
			t.Fatal(err)
		}
		s.Flush()
		<-p.Answered()
		if err := s.Result(p); err != nil {
			t.Fatal(err)
		}
		ch := open(t, conn)
		deliveries, err := ch.Consume(t.Context(), "q", "tag", 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := (<-deliveries).Delivery
		got := d.Message
		got.Headers = amqpconn.ReadTable(got.Headers)
		want := *sent
		want.Headers = amqpconn.CloneTable(sent.Headers)
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Errorf("got  %#v\nwant %#v", got, want)
		}
		if d.Tag != 1 || d.RoutingKey != "q" || d.Redelivered {
			t.Errorf("delivery: got %+v, want tag 1, routing key q and not redelivered", d)
		}
		if err := ch.Nack(d.Tag, false, true); err != nil {
			t.Fatal(err)
		}
		if d = (<-deliveries).Delivery; d.Tag != 2 || !d.Redelivered {
			t.Errorf("redelivery: got %+v, want tag 2 and redelivered", d)
		}
		if err := ch.Cancel(t.Context(), "tag"); err != nil {
			t.Fatal(err)
		}
		if _, open := <-deliveries; open {
			t.Error("deliveries channel is open after Cancel")
		}
		if err := errors.Join(ch.Ack(d.Tag, false), ch.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		ch.Close(t.Context())
		<-ch.Context().Done()
		if err := ch.Ack(d.Tag, false); !errors.Is(err, amqpconn.ErrGone) {
			t.Errorf("ack after Close: got %v, want ErrGone", err)
		}
		err = conn.Do(t.Context(), func(ch *amqpconn.Channel) error {
			if n, err := ch.Depth(t.Context(), "q"); n != 0 || err != nil {
				return fmt.Errorf("depth: got %d, want 0: %w", n, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A refusal closes only the channel.
func TestRefusalClosesOnlyChannel(t *testing.T) {
	eachClient(t, func(t *testing.T, _ *amqpconn.Link, conn *amqpconn.Conn) {
		ch := open(t, conn)
		_, err := ch.Depth(t.Context(), "missing")
		if refusal, ok := amqpconn.RefusedChannel(err); !ok || refusal.Code != amqpconn.NotFound {
			t.Errorf("Depth of a missing queue: got %v, want a refusal of the channel with code 404", err)
		}
		<-ch.Context().Done()
		if _, ok := amqpconn.RefusedChannel(context.Cause(ch.Context())); !ok {
			t.Errorf("cause of the closed channel: got %v, want a refusal of the channel", context.Cause(ch.Context()))
		}
		if err := conn.Ping(t.Context()); err != nil {
			t.Errorf("cannot ping the connection: %v", err)
		}
	})
}

func TestRequestEndsWithContext(t *testing.T) {
	eachClient(t, func(t *testing.T, _ *amqpconn.Link, conn *amqpconn.Conn) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ch := open(t, conn)
		if err := ch.Sync(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Sync with a canceled context: got %v, want context.Canceled", err)
		}
		if err := ch.Sync(t.Context()); err != nil {
			t.Errorf("next request: %v", err)
		}
	})
}

func TestEncodeTableRejectsUnsupportedTypes(t *testing.T) {
	for _, v := range []any{struct{}{}, make(chan int), uint64(1 << 63), []any{map[string]any{"x": struct{}{}}}} {
		if _, err := amqpconn.EncodeTable(map[string]any{"h": v}); !errors.Is(err, amqpconn.ErrInvalidMessage) {
			t.Errorf("EncodeTable(%T): got %v, want ErrInvalidMessage", v, err)
		}
	}
}

// A publication that another channel could not write gets an answer on the next channel, and takes none from others.
func TestPublicationMovesToNextChannel(t *testing.T) {
	eachClient(t, func(t *testing.T, _ *amqpconn.Link, conn *amqpconn.Conn) {
		declare(t, conn, topology.Queue{Name: "q"})
		first := confirming(t, conn)
		moved := &amqpconn.Publication{RoutingKey: "q", Message: &amqpconn.Message{MessageID: "moved"}}
		if err := first.Publish(moved); err != nil {
			t.Fatal(err)
		}
		first.Flush()
		<-moved.Answered()
		if err := first.Result(moved); err != nil {
			t.Fatal(err)
		}
		second := confirming(t, conn)
		other := &amqpconn.Publication{RoutingKey: "q", Message: &amqpconn.Message{MessageID: "other"}} // has the same tag
		if err := second.Publish(other); err != nil {
			t.Fatal(err)
		}
		second.Flush()
		second.Close()
		if err := second.Publish(moved); !errors.Is(err, amqpconn.ErrNotWritten) {
			t.Errorf("got %v, want ErrNotWritten", err)
		}
		<-other.Answered()
		_ = second.Result(other) // confirmed before the channel closed, or not
		third := confirming(t, conn)
		if err := third.Publish(moved); err != nil {
			t.Fatal(err)
		}
		third.Flush()
		<-moved.Answered()
		if err := third.Result(moved); err != nil {
			t.Errorf("got %v, want a confirm", err)
		}
	})
}

// The broker quotes names in its reasons, and cuts long texts. Neither breaks the connection.
func TestReasonNeedNotBeUTF8(t *testing.T) {
	eachClient(t, func(t *testing.T, _ *amqpconn.Link, conn *amqpconn.Conn) {
		s := confirming(t, conn)
		p := &amqpconn.Publication{Exchange: "missing\xff", Message: &amqpconn.Message{}}
		if err := s.Publish(p); err != nil {
			t.Fatal(err)
		}
		s.Flush()
		<-p.Answered()
		if refusal, ok := amqpconn.RefusedChannel(s.Result(p)); !ok || refusal.Code != amqpconn.NotFound {
			t.Errorf("got %v, want the refusal of a channel with code 404", refusal)
		}
		_, err := open(t, conn).Depth(t.Context(), "a"+strings.Repeat("\u00e9", 120))
		if refusal, ok := amqpconn.RefusedChannel(err); !ok || refusal.Code != amqpconn.NotFound {
			t.Errorf("got %v, want the refusal of a channel with code 404", err)
		}
		if err := conn.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A message that cannot be encoded does not break the connection.
func TestPublishRefusesDeepHeaders(t *testing.T) {
	_, conn := connect(t, clients["native"])
	declare(t, conn, topology.Queue{Name: "q"})
	var deep any
	for range 2000 {
		deep = []any{deep}
	}
	s := confirming(t, conn)
	p := &amqpconn.Publication{RoutingKey: "q", Message: &amqpconn.Message{Headers: topology.Table{"deep": deep}}}
	if err := s.Publish(p); !errors.Is(err, amqpconn.ErrInvalidMessage) {
		t.Errorf("got %v, want ErrInvalidMessage", err)
	}
	if err := results(t, s, "q")[0]; err != nil {
		t.Errorf("next message: got %v, want a confirm", err)
	}
}

package testkit

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// tapped runs a test with a tap and an embedded broker, in virtual time. The channel observer bypasses the tap.
func tapped(t *testing.T, test func(t *testing.T, p *Tap, observer *amqp.Channel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Shutdown(context.Background())
		conn := tapDial(t, b.DialContext)
		defer conn.Close()
		observer := tapChannel(t, conn)
		if _, err := observer.QueueDeclare("q", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		p := NewTap(b.DialContext, "one", "two")
		defer p.Close()
		test(t, p, observer)
	})
}

func tapDial(t *testing.T, dial DialFunc) *amqp.Connection {
	t.Helper()
	return tapDialTo(t, "amqp://guest:guest@broker/", dial)
}

func tapDialTo(t *testing.T, url string, dial DialFunc) *amqp.Connection {
	t.Helper()
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return dial(context.Background(), network, addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func tapChannel(t *testing.T, conn *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// put publishes with a confirm, and reports whether the confirm arrived.
func put(t *testing.T, ch *amqp.Channel, body string) bool {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{Body: []byte(body)})
	return err == nil && confirm.Wait()
}

// ready returns the number of messages in the queue.
func ready(t *testing.T, observer *amqp.Channel) int {
	t.Helper()
	synctest.Wait()
	q, err := observer.QueueDeclarePassive("q", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}

// The frames of one publication on line "one".
var published = []Crossing{
	{"one", ToServer, "confirm.select"},
	{"one", ToClient, "confirm.select-ok"},
	{"one", ToServer, "basic.publish"},
	{"one", ToServer, "basic.publish: header"},
	{"one", ToServer, "basic.publish: body"},
	{"one", ToClient, "basic.ack"},
}

func TestTapRecordsFrames(t *testing.T) {
	tapped(t, func(t *testing.T, p *Tap, observer *amqp.Channel) {
		conn := tapDial(t, p.Dial)
		defer conn.Close()
		ch := tapChannel(t, conn)
		time.Sleep(time.Hour) // heartbeats cross as well
		p.Record()
		if !put(t, ch, "a") {
			t.Error("message was not confirmed")
		}
		if got := p.Recorded(); !slices.Equal(got, published) {
			t.Errorf("recorded:\n%v, want\n%v", got, published)
		}
		if n := p.Crossed(published[4]); n != 1 {
			t.Errorf("got %d body frames, want 1", n)
		}
		if n := ready(t, observer); n != 1 {
			t.Errorf("queue has %d messages, want 1", n)
		}
	})
}

// For each position of the cut, exactly the earlier frames have crossed.
func TestTapCutsBeforeSpecifiedFrame(t *testing.T) {
	for at, c := range published {
		for _, unnoticed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, unnoticed %v", c, unnoticed), func(t *testing.T) {
				tapped(t, func(t *testing.T, p *Tap, observer *amqp.Channel) {
					conn := tapDial(t, p.Dial)
					defer conn.Close()
					ch := tapChannel(t, conn)
					p.Record()
					then := false
					cut := p.Cut(Cut{Script: published, At: at, Lines: []string{"one"}, Unnoticed: unnoticed, Then: func() { then = true }})
					var confirmed bool
					var publishing sync.WaitGroup
					publishing.Go(func() {
						if err := ch.Confirm(false); err != nil {
							return
						}
						confirm, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{Body: []byte("a")})
						confirmed = err == nil && confirm.Wait()
					})
					<-cut
					synctest.Wait()
					if got := p.Recorded(); !slices.Equal(got, published[:at]) {
						t.Errorf("frames: got %v, want %v", got, published[:at])
					}
					if n, want := ready(t, observer), max(0, at-4); n != want {
						t.Errorf("queue has %d messages, want %d", n, want)
					}
					// A client notices the cut when it writes, but not while it waits for a response.
					if noticed := !unnoticed || c.Direction == ToServer; conn.IsClosed() != noticed {
						t.Errorf("client connection closed: got %v, want %v", conn.IsClosed(), noticed)
					}
					p.Notice()
					publishing.Wait()
					if !conn.IsClosed() || confirmed || !then {
						t.Errorf("closed, confirmed, Then called: got %t, %t, %t; want true, false, true", conn.IsClosed(), confirmed, then)
					}
					tapDial(t, p.Dial).Close() // connections work again
				})
			})
		}
	}
}

// The tap holds the other line until Then returns.
func TestTapCutsOtherLine(t *testing.T) {
	tapped(t, func(t *testing.T, p *Tap, observer *amqp.Channel) {
		one, two := tapDial(t, p.Dial), tapDial(t, p.Dial)
		defer one.Close()
		defer two.Close()
		ch := tapChannel(t, one)
		cut := p.Cut(Cut{Script: published, At: 4, Lines: []string{"two"}, Refuse: true, Then: func() {
			for !two.IsClosed() {
				time.Sleep(time.Millisecond)
			}
			q, err := observer.QueueDeclarePassive("q", true, false, false, false, nil)
			if err != nil || q.Messages != 0 {
				t.Errorf("queue has %d messages, want 0 (%v)", q.Messages, err)
			}
		}})
		if !put(t, ch, "a") {
			t.Error("message was not confirmed")
		}
		<-cut
		if one.IsClosed() || !two.IsClosed() || !p.Refusing() {
			t.Errorf("closed: got %v and %v, want false and true; refusing: got %v, want true", one.IsClosed(), two.IsClosed(), p.Refusing())
		}
		if _, err := p.Dial(t.Context(), "tcp", "broker:5672"); err == nil {
			t.Error("tap accepted a connection")
		}
	})
}

// Early frames wait for their turn.
func TestTapDelaysEarlyFrames(t *testing.T) {
	tapped(t, func(t *testing.T, p *Tap, observer *amqp.Channel) {
		one, two := tapDial(t, p.Dial), tapDial(t, p.Dial)
		defer one.Close()
		defer two.Close()
		chOne, chTwo := tapChannel(t, one), tapChannel(t, two)
		p.Record()
		script := append(slices.Clone(published[:2]), Crossing{"two", ToServer, "queue.declare"}, Crossing{"two", ToClient, "queue.declare-ok"}, published[2])
		p.Cut(Cut{Script: script, At: 4})
		var declaring sync.WaitGroup
		declaring.Go(func() {
			if _, err := chTwo.QueueDeclare("other", true, false, false, false, nil); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if got := p.Recorded(); len(got) != 0 {
			t.Errorf("frames before the turn: got %v, want none", got)
		}
		if got := p.Waiting(); got == "" {
			t.Error("Waiting is empty")
		}
		if !put(t, chOne, "a") {
			t.Error("message was not confirmed")
		}
		declaring.Wait()
		if got := p.Recorded()[:5]; !slices.Equal(got, script) {
			t.Errorf("frames: got %v, want %v", got, script)
		}
	})
}

func TestTapIsNotQuietWithinAMessage(t *testing.T) {
	tapped(t, func(t *testing.T, p *Tap, observer *amqp.Channel) {
		conn := tapDial(t, p.Dial)
		defer conn.Close()
		ch := tapChannel(t, conn)
		synctest.Wait()
		if !p.Quiet() {
			t.Error("tap is not quiet before the publish")
		}
		halfway := make(chan struct{})
		p.Cut(Cut{Script: published, At: 3, Then: func() {
			close(halfway)
			time.Sleep(time.Second)
		}})
		var publishing sync.WaitGroup
		publishing.Go(func() { put(t, ch, "a") })
		<-halfway
		if p.Quiet() {
			t.Error("tap is quiet within a message")
		}
		publishing.Wait()
		synctest.Wait()
		if !p.Quiet() {
			t.Error("tap is not quiet after the publish")
		}
	})
}

// The tap counts all kinds of acknowledgements.
func TestTapCountsAcks(t *testing.T) {
	tapped(t, func(t *testing.T, p *Tap, observer *amqp.Channel) {
		conn := tapDial(t, p.Dial)
		defer conn.Close()
		ch := tapChannel(t, conn)
		for range 6 {
			put(t, observer, "a")
		}
		deliveries, err := ch.Consume("q", "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			<-deliveries
		}
		for _, step := range []struct {
			name   string
			settle func() error
			want   int
		}{
			{"ack", func() error { return ch.Ack(2, false) }, 1},
			{"reject", func() error { return ch.Reject(3, false) }, 1},
			{"multiple", func() error { return ch.Ack(4, true) }, 3},
			{"nack multiple", func() error { return ch.Nack(5, true, false) }, 3},
			{"ack the last", func() error { return ch.Ack(6, true) }, 4},
		} {
			if err := step.settle(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := p.Acked(); n != step.want {
				t.Errorf("%s: got %d acknowledged deliveries, want %d", step.name, n, step.want)
			}
		}
	})
}

// The server processes acknowledgements that have crossed, even if the line is cut before any response.
func TestTapCutWaitsUntilAcksAreProcessed(t *testing.T) {
	const messages, rounds = 100, 5
	ack := Crossing{"one", ToServer, "basic.ack"}
	script := append(slices.Repeat([]Crossing{ack}, messages), Crossing{"one", ToServer, "channel.close"})
	Each(t, func(t *testing.T, b Target) {
		side, err := amqp.Dial(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer side.Close()
		observer := tapChannel(t, side)
		queue := Name(t, "q")
		if _, err := observer.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		defer observer.QueueDelete(queue, false, false, false)
		for round := range rounds {
			// The broker would redeliver an unprocessed message before these messages.
			for n := range messages {
				if err := observer.Publish("", queue, false, false, amqp.Publishing{Body: fmt.Append(nil, round, n)}); err != nil {
					t.Fatal(err)
				}
			}
			p := NewTap((&net.Dialer{}).DialContext, "one")
			conn := tapDialTo(t, b.URL, p.Dial)
			ch := tapChannel(t, conn)
			deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			for n := range messages {
				d := <-deliveries
				if got, want := string(d.Body), fmt.Sprint(round, n); got != want {
					t.Fatalf("got message %q, want %q", got, want)
				}
			}
			cut := p.Cut(Cut{Script: script, At: messages, Lines: []string{"one"}})
			for n := range messages {
				if err := ch.Ack(uint64(n+1), false); err != nil {
					t.Fatal(err)
				}
			}
			_ = ch.Close()
			wait(t, cut)
			_ = conn.Close()
			p.Close()
		}
	})
}

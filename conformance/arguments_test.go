package conformance

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

// asker sends requests to a broker on channel 1, and describes the replies.
type asker struct {
	t *testing.T
	b testkit.Target
	r *raw
}

// ask sends a request and returns a description of the reply. If the broker closes the channel or the connection, ask
// opens a new one.
func (a *asker) ask(m amqpwire.Method) string {
	a.t.Helper()
	if a.r == nil {
		a.r = dialRaw(a.t, a.b).open(10, 0)
	}
	_ = a.r.SetDeadline(time.Now().Add(timeout))
	a.r.send(1, m)
	for {
		f, err := a.r.in.ReadFrame()
		if err != nil {
			a.t.Fatalf("%s: cannot read the reply to %s: %v", a.b.Name, methodText(m), err)
		}
		if f.Type != amqpwire.FrameMethod {
			continue
		}
		reply, err := amqpwire.ParseMethod(f.Payload)
		if err != nil {
			a.t.Fatal(err)
		}
		switch reply.(type) {
		case *amqpwire.ChannelClose:
			a.r.send(1, &amqpwire.ChannelCloseOk{})
			a.r.send(1, &amqpwire.ChannelOpen{})
			expect(a.r, &amqpwire.ChannelOpenOk{})
		case *amqpwire.ConnectionClose:
			a.r.send(0, &amqpwire.ConnectionCloseOk{})
			_ = a.r.Close()
			a.r = nil
		}
		return methodText(reply)
	}
}

// askers returns the embedded broker and RabbitMQ 4.3.
func askers(t *testing.T) (ours, theirs *asker) {
	t.Helper()
	b := brokers(t)
	return &asker{t: t, b: b.ours.broker}, &asker{t: t, b: b.theirs.broker}
}

// queueArguments lists all arguments of queues that RabbitMQ 4.3 documents, and some that it does not know.
var queueArguments = []string{
	"x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-max-length",
	"x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-version", "x-single-active-consumer", "x-consumer-timeout",
	"x-consumer-disconnected-timeout", "x-delivery-limit", "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max",
	"x-queue-mode", "x-queue-master-locator", "x-queue-leader-locator", "x-max-in-memory-length", "x-max-in-memory-bytes",
	"x-quorum-initial-group-size", "x-quorum-target-group-size", "x-member-placement-tag", "x-max-age",
	"x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes", "x-initial-cluster-size", "x-selector-fields",
	"x-selector-field-max-bytes", "x-ha-policy", "x-unknown", "alternate-exchange", "x-priority",
}

// argumentValues contains values of all types, limits, and words that arguments require.
var argumentValues = []any{
	nil, true, int8(5), int32(0), int32(1), int32(2), int32(255), int32(256), int32(-1), uint16(5), int64(315_360_000_000),
	int64(315_360_000_001), float32(5), float64(5.5), amqpwire.Timestamp(5),
	amqpwire.Decimal{Value: 5},
	"", "5", "abc", []byte("abc"),
	amqpwire.Table{},
	amqpwire.Array{"5"},
	"at-least-once", "drop-head", "reject-publish-dlx", "lazy", "client-local", "least-leaders", "7D",
}

// repeated contains values of all types for a second declaration.
var repeated = []any{
	nil, true, int8(5), int64(5), int32(600_000), float32(600_000), float64(1e21), float64(5.5), amqpwire.Timestamp(600_000), "abc", []byte("abc"),
	amqpwire.Table{},
	amqpwire.Table{{Name: "a", Value: int32(1)}},
	amqpwire.Array{},
	amqpwire.Array{"5"},
	"drop-head", "client-local",
}

// The broker accepts and refuses the same values of the arguments of queues as RabbitMQ.
func TestQueueArguments(t *testing.T) {
	ours, theirs := askers(t)
	for _, kind := range []string{"classic", "quorum"} {
		for _, name := range queueArguments {
			for _, value := range argumentValues {
				q := declaration{t, ours, theirs, testkit.Name(t, "q")}
				if q.same(declared(kind, name, value)) {
					q.delete()
				}
			}
		}
	}
}

// A second declaration must have the same arguments as in RabbitMQ.
func TestRepeatedQueueArguments(t *testing.T) {
	ours, theirs := askers(t)
	for _, kind := range []string{"classic", "quorum"} {
		for _, name := range queueArguments {
			for _, value := range repeated {
				q := declaration{t, ours, theirs, testkit.Name(t, "q")}
				if name == "x-expires" && (value == int8(5) || value == int64(5)) {
					continue // the queue would expire
				}
				if args := declared(kind, name, value); q.same(args) {
					for _, again := range repeated {
						q.same(declared(kind, name, again))
					}
					q.same(args[1:])
					q.delete()
				}
			}
		}
	}
}

// The broker accepts and refuses the same queue types as RabbitMQ. Without a type, the queue is classic.
func TestQueueTypeArgument(t *testing.T) {
	ours, theirs := askers(t)
	for _, kind := range append(argumentValues, "classic", "quorum", "undefined", "Quorum", "nosuch", "rabbit_quorum_queue") {
		q := declaration{t, ours, theirs, testkit.Name(t, "q")}
		of := amqpwire.Table{{Name: "x-queue-type", Value: kind}}
		q.same(of)
		q.same(append(of, amqpwire.Field{Name: "x-max-length", Value: int32(-1)}))
		q.same(append(of, amqpwire.Field{Name: "x-delivery-limit", Value: int32(1)}))
		for _, again := range []amqpwire.Table{nil, {{Name: "x-queue-type", Value: "classic"}}, {{Name: "x-queue-type", Value: ""}}} {
			q.same(again)
		}
		q.delete()
	}
	q := declaration{t, ours, theirs, testkit.Name(t, "q")}
	for _, several := range []amqpwire.Table{ // the broker reports one of several errors
		{{Name: "x-max-age", Value: "1D"}, {Name: "x-initial-cluster-size", Value: int32(1)}},
		{{Name: "x-max-age", Value: "1D"}, {Name: "x-initial-cluster-size", Value: int32(1)}, {Name: "x-queue-type", Value: "quorum"}},
		{{Name: "x-max-age", Value: "1D"}, {Name: "x-overflow", Value: "x"}, {Name: "x-max-in-memory-bytes", Value: "x"}},
	} {
		q.same(several)
	}
}

// The broker accepts and refuses the same arguments of consumers as RabbitMQ.
func TestConsumerArguments(t *testing.T) {
	ours, theirs := askers(t)
	for _, kind := range []string{"classic", "quorum"} {
		q := declaration{t, ours, theirs, testkit.Name(t, "q")}
		q.same(amqpwire.Table{{Name: "x-queue-type", Value: kind}})
		for _, name := range []string{
			"x-priority", "x-consumer-timeout", "x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered", "x-cancel-on-ha-failover", "x-unknown",
		} {
			for _, value := range append(argumentValues, "first", "next", "last", int64(math.MinInt64), int64(math.MaxInt64)) {
				args := amqpwire.Table{{Name: name, Value: value}}
				if q.ask(&amqpwire.BasicConsume{Queue: q.queue, ConsumerTag: "c", Arguments: args}, args) {
					q.ask(&amqpwire.BasicCancel{ConsumerTag: "c"}, args)
				}
			}
		}
		q.delete()
	}
}

// declared returns arguments with the given value first.
func declared(kind, name string, value any) amqpwire.Table {
	args := amqpwire.Table{{Name: name, Value: value}}
	if name == "x-dead-letter-routing-key" || name == "x-dead-letter-strategy" {
		args = append(args, amqpwire.Field{Name: "x-dead-letter-exchange", Value: ""})
	}
	return append(args, amqpwire.Field{Name: "x-queue-type", Value: kind})
}

// declaration declares and uses a queue on both brokers.
type declaration struct {
	t            *testing.T
	ours, theirs *asker
	queue        string
}

// same declares the queue.
func (d declaration) same(args amqpwire.Table) (ok bool) {
	d.t.Helper()
	return d.ask(&amqpwire.QueueDeclare{Queue: d.queue, Durable: true, Arguments: args}, args)
}

// ask requires equal replies, and reports whether RabbitMQ has accepted the request. The text of a reply with code 541 can
// differ, because RabbitMQ describes an option of its configuration.
func (d declaration) ask(m amqpwire.Method, args amqpwire.Table) (ok bool) {
	d.t.Helper()
	got, want := d.ours.ask(m), d.theirs.ask(m)
	got, want = strings.ReplaceAll(got, d.queue, "q"), strings.ReplaceAll(want, d.queue, "q")
	if first, _, more := strings.Cut(want, "\n"); more {
		want = first + " ClassID=50 MethodID=10"
	}
	if got != want {
		d.t.Errorf("%s:\ngot  %s\nwant %s", valueText(args), got, want)
	}
	return !strings.Contains(want, ".close ")
}

func (d declaration) delete() {
	d.ours.ask(&amqpwire.QueueDelete{Queue: d.queue})
	d.theirs.ask(&amqpwire.QueueDelete{Queue: d.queue})
}

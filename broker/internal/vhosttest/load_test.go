package vhosttest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// every is a table with a value of each type.
var every = amqpwire.Table{
	{Name: "bool", Value: true},
	{Name: "int8", Value: int8(-1)},
	{Name: "uint8", Value: uint8(255)},
	{Name: "int16", Value: int16(-1)},
	{Name: "uint16", Value: uint16(65535)},
	{Name: "int32", Value: int32(-1)},
	{Name: "uint32", Value: uint32(math.MaxUint32)},
	{Name: "int64", Value: int64(math.MinInt64)},
	{Name: "float32", Value: float32(0.1)},
	{Name: "float64", Value: math.Inf(1)},
	{Name: "decimal", Value: amqpwire.Decimal{Scale: 2, Value: 314}},
	{Name: "text", Value: "\xff\x00\""},
	{Name: "bytes", Value: []byte{0, 255}},
	{Name: "array", Value: amqpwire.Array{int8(1), "a", amqpwire.Array(nil)}},
	{Name: "timestamp", Value: amqpwire.Timestamp(math.MaxUint64)},
	{Name: "table", Value: amqpwire.Table{{Name: "twice", Value: int8(1)}, {Name: "twice", Value: int16(1)}}},
	{Name: "nothing", Value: nil},
}

// oddNames lists names that parsers could misread.
var oddNames = []string{
	" ", "/", "a/b", "%2F", "%", ".", "..", "\x00", "\xff\xfe", "queue/x", "日本語", strings.Repeat("/", 255), "?#&=+",
}

func TestDurableObjectsSurviveRestart(t *testing.T) {
	d := openData(t)
	root := d.add("/")
	root.SetAbout(vhost.About{Description: "with a \"description\"", Tags: []string{"a", "ü"}})
	for _, kind := range []string{"direct", "fanout", "topic", "headers"} {
		d.exchange(root, kind, kind, true, every)
		d.declare(root, kind, true, every)
		d.must(root.Bind(toQueue(kind, kind, "key", every), nobody))
		d.must(root.Bind(toQueue(kind, kind, "key", nil), nobody))
		d.must(root.Bind(toQueue("amq."+kind, kind, "", amqpwire.Table{{Name: "x-match", Value: "any"}}), nobody))
	}
	d.must(root.DeclareExchange(&amqpwire.ExchangeDeclare{Exchange: "internal", Type: "topic", Durable: true, Internal: true}))
	d.must(root.DeclareExchange(&amqpwire.ExchangeDeclare{Exchange: "going", Type: "topic", Durable: true, AutoDelete: true}))
	d.exchange(root, "alternate", "direct", true, amqpwire.Table{{Name: "alternate-exchange", Value: "fanout"}})
	d.must(root.Bind(toExchange("topic", "internal", "a.#", every), nobody))
	d.must(root.Bind(toExchange("topic", "topic", "", nil), nobody))
	d.must(root.Bind(toExchange("going", "fanout", "", nil), nobody))
	d.declare(root, "quorum", true, amqpwire.Table{{Name: "x-queue-type", Value: "quorum"}, {Name: "x-delivery-limit", Value: int8(3)}})
	_, err := root.DeclareQueue(&amqpwire.QueueDeclare{Queue: "auto-delete", Durable: true, AutoDelete: true}, nobody, anything)
	d.must(err)
	d.declare(root, "", true, nil) // the broker generates the name
	for _, name := range append(oddNames, "") {
		v := d.add("odd" + name)
		for _, name := range oddNames {
			d.exchange(v, name, "direct", true, nil)
			d.declare(v, name, true, nil)
			d.must(v.Bind(toQueue(name, name, name, nil), nobody))
			d.must(v.Bind(toExchange(name, name, name, nil), nobody))
		}
	}
	_, _, err = root.Publish(persistently("quorum", "body"))
	d.must(err)
	for _, p := range []vhost.Policy{
		{Name: "p", Pattern: "^quorum", Definition: vhost.Definition{"max-length": int64(7), "dead-letter-exchange": "x"}, Priority: 1.5, ApplyTo: "queues"},
		{Name: "p", Pattern: "", Definition: vhost.Definition{"message-ttl": int64(900000)}, ApplyTo: "all", Operator: true},
		{Name: "a/%", Pattern: "^fan", Definition: vhost.Definition{"alternate-exchange": "direct"}, ApplyTo: "exchanges"},
		{Name: "trace", Pattern: "^amq", Definition: vhost.Definition{"alternate-exchange": "fanout"}, ApplyTo: "all"},
	} {
		_, err := root.SetPolicy(p)
		d.must(err)
	}

	want := d.snapshot()
	d.restart()
	if diff := cmp.Diff(want, d.snapshot()); diff != "" {
		t.Error(diff)
	}
	d.restart() // restart again, with the loaded data
	if diff := cmp.Diff(want, d.snapshot()); diff != "" {
		t.Error(diff)
	}
	// All objects must work. For example, the alternate exchange routes messages.
	root = d.hosts["/"]
	m := persistently("nowhere", "x")
	m.Exchange = "alternate"
	if n, _, err := root.Publish(m); n != 1 || err != nil {
		t.Errorf("alternate exchange routed to %d queues (%v), want 1", n, err)
	}
	if c := root.FindQueue("quorum").Config(); c.MaxLength != 7 || c.TTL != 15*time.Minute || c.DeadLetter == nil || c.DeliveryLimit != 3 {
		t.Errorf("settings of a queue with policies after the restart: %+v", c.Settings)
	}
	m.Exchange = "amq.direct"
	if n, _, err := root.Publish(m); n != 1 || err != nil {
		t.Errorf("alternate exchange of a policy routed to %d queues (%v), want 1", n, err)
	}
	if !root.DeletePolicy("p", false) || !root.DeletePolicy("p", true) {
		t.Error("policy is missing after the restart")
	}
	if c := root.FindQueue("quorum").Config(); c.MaxLength != -1 || c.TTL != queue.NoTTL || c.DeadLetter != nil {
		t.Errorf("settings without policies: %+v", c.Settings)
	}
}

func TestTransientObjectsDoNotSurviveRestart(t *testing.T) {
	d := openData(t)
	v := d.add("/")
	want := d.snapshot()
	owner := new(int)
	d.exchange(v, "x", "direct", false, nil)
	d.declare(v, "transient", false, nil)
	exclusive, err := v.DeclareQueue(&amqpwire.QueueDeclare{Queue: "exclusive", Durable: true, Exclusive: true}, owner, anything)
	d.must(err)
	d.must(v.Bind(toQueue("amq.direct", "transient", "k", nil), owner))
	d.must(v.Bind(toQueue("amq.direct", "exclusive", "k", nil), owner))
	d.must(v.Bind(toExchange("amq.direct", "x", "k", nil), nobody))
	d.must(v.Bind(toExchange("x", "amq.direct", "k", nil), nobody))
	_, _, err = v.Publish(persistently(exclusive.Name(), "x"))
	d.must(err)
	d.restart()
	if diff := cmp.Diff(want, d.snapshot()); diff != "" {
		t.Error(diff)
	}
	for range d.store.Documents("binding/") {
		t.Error("transient binding was saved")
	}
}

// Deleted objects do not return after a restart, and clients can use their names again.
func TestDeletedObjectsDoNotReturnAfterRestart(t *testing.T) {
	d := openData(t)
	v := d.add("/")
	want := d.snapshot()
	for _, remove := range []func(){
		func() { d.must(v.Unbind(toQueue("x", "q", "k", every), nobody)) }, // also deletes x and the exchange that is bound to x
		func() { d.must(v.DeleteExchange("x", false)) },
		func() {},
	} {
		d.must(v.DeclareExchange(&amqpwire.ExchangeDeclare{Exchange: "x", Type: "topic", Durable: true, AutoDelete: true}))
		d.must(v.DeclareExchange(&amqpwire.ExchangeDeclare{Exchange: "before", Type: "topic", Durable: true, AutoDelete: true}))
		q := d.declare(v, "q", true, nil)
		d.must(v.Bind(toQueue("x", "q", "k", every), nobody))
		d.must(v.Bind(toExchange("before", "x", "k", nil), nobody))
		_, _, err := v.Publish(persistently("q", "x"))
		d.must(err)
		remove()
		_, err = v.DeleteQueue(q, queue.Condition{})
		d.must(err)
		d.restart()
		v = d.hosts["/"]
		if diff := cmp.Diff(want, d.snapshot()); diff != "" {
			t.Error(diff)
		}
	}
	d.declare(v, "q", true, amqpwire.Table{{Name: "x-queue-type", Value: "quorum"}})
	d.restart()
	if q := d.hosts["/"].Queues(); len(q) != 1 || !q[0].Config().Quorum || q[0].Stats().Ready != 0 {
		t.Errorf("unexpected queues: %+v", q)
	}
}

func TestDeletedVirtualHostDoesNotReturn(t *testing.T) {
	d := openData(t)
	for _, name := range []string{"/", "/a", "a"} {
		v := d.add(name)
		d.exchange(v, "x", "direct", true, nil)
		d.declare(v, "q", true, nil)
		d.must(v.Bind(toQueue("x", "q", "", nil), nobody))
		_, _, err := v.Publish(persistently("q", "x"))
		d.must(err)
	}
	gone := d.hosts["/a"]
	delete(d.hosts, "/a")
	want := d.snapshot()
	gone.Forget()
	// Connections to the deleted virtual host may still exist while another virtual host has its name.
	again := vhost.New("/a", d.config())
	d.declare(gone, "late", true, nil)
	gone.Delete()
	again.Forget()
	again.Delete()
	d.restart()
	if diff := cmp.Diff(want, d.snapshot()); diff != "" {
		t.Error(diff)
	}
	if left, err := d.store.Queues(); err != nil || len(left) != 2 {
		t.Errorf("store still has messages of the queues %v (%v)", left, err)
	}
}

// After a crash, the broker removes the remaining data of a deleted object. The next object with the same name does not
// inherit the data.
func TestLoadRemovesLeftoversOfCrash(t *testing.T) {
	d := openData(t)
	v := d.add("/")
	want := d.snapshot()
	d.exchange(v, "x", "direct", true, nil)
	d.declare(v, "q", true, nil)
	d.must(v.Bind(toQueue("amq.direct", "q", "k", nil), nobody))
	d.must(v.Bind(toExchange("amq.direct", "x", "k", nil), nobody))
	d.must(v.Bind(toExchange("x", "amq.direct", "k", nil), nobody))
	d.registry.Delete("queue", "/", "q")
	d.registry.Delete("exchange", "/", "x")
	gone := d.add("gone")
	d.declare(gone, "q", true, nil)
	d.exchange(gone, "x", "direct", true, nil)
	d.must(gone.Bind(toQueue("x", "q", "", nil), nobody))
	_, _, err := gone.Publish(persistently("q", "x"))
	d.must(err)
	d.registry.Delete("vhost", "gone")
	d.store.SetDocument("consumed/0000000000007fff", nil) // note of a queue whose messages were consumed
	d.store.SetDocument("died/0000000000007fff", nil)
	d.restart()
	if diff := cmp.Diff(want, d.snapshot()); diff != "" {
		t.Error(diff)
	}
	d.restart() // the removals of the first start are on disk after the close
	for _, prefix := range []string{"queue/", "exchange/", "binding/", "consumed/", "died/"} {
		for document := range d.store.Documents(prefix) {
			t.Errorf("document %s still exists", document.Name)
		}
	}
	if left, err := d.store.Queues(); err != nil || len(left) != 0 {
		t.Errorf("store still has messages of the queues %v (%v)", left, err)
	}
}

// When the broker loads its data, it dead-letters expired messages only after it has loaded their target queue. The queue
// TTL starts again.
func TestLoadDeadLettersExpiredMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openData(t)
		v := d.add("/")
		d.declare(v, "a source", true, amqpwire.Table{
			{Name: "x-dead-letter-exchange", Value: "x"},
			{Name: "x-message-ttl", Value: int64(time.Minute / time.Millisecond)},
			{Name: "x-max-length", Value: int64(1 << 40)},
		})
		d.exchange(v, "x", "fanout", true, nil)
		d.declare(v, "z target", true, amqpwire.Table{{Name: "x-expires", Value: int64(time.Hour / time.Millisecond)}})
		d.must(v.Bind(toQueue("x", "z target", "", nil), nobody))
		for range 100 {
			v.Publish(persistently("a source", "body"))
		}
		d.close()
		time.Sleep(2 * time.Hour)
		d.open()
		synctest.Wait()
		target, err := d.hosts["/"].Queue("z target", nobody)
		d.must(err)
		if n := target.Stats().Ready; n != 100 {
			t.Errorf("dead letters: got %d, want 100", n)
		}
	})
}

func TestSurvey(t *testing.T) {
	d := openData(t)
	v := d.add("/")
	d.declare(v, "q", true, nil)
	d.declare(v, "transient", false, nil)
	for range 3 {
		v.Publish(persistently("q", "body"))
		v.Publish(persistently("transient", "body"))
	}
	d.restart()
	if queues, messages, err := vhost.Survey(d.store); queues != 1 || messages != 3 || err != nil {
		t.Errorf("Survey: got %d queues and %d messages (%v), want 1 and 3", queues, messages, err)
	}
}

// A crash cannot cause invalid documents. If a document is invalid, the broker does not start, because other data may be
// damaged too.
// Earlier versions accepted arguments that the broker refuses now. Their queues still load.
func TestLoadKeepsArgumentsOfEarlierVersions(t *testing.T) {
	d := openData(t)
	d.add("/")
	arguments := amqpwire.Table{
		{Name: "x-queue-type", Value: "quorum"},
		{Name: "x-max-age", Value: "1D"},
		{Name: "x-queue-master-locator", Value: "min-masters"},
		{Name: "x-queue-leader-locator", Value: "nearest"},
		{Name: "x-quorum-initial-group-size", Value: int32(0)},
	}
	if _, err := d.hosts["/"].DeclareQueue(&amqpwire.QueueDeclare{Queue: "q", Durable: true, Arguments: arguments}, nobody, anything); err == nil {
		t.Error("new queue with these arguments was accepted")
	}
	encoded, err := arguments.Append(nil)
	d.must(err)
	document, err := json.Marshal(map[string]any{"id": 1, "arguments": encoded})
	d.must(err)
	d.must(d.store.Wait(context.Background(), d.store.SetDocument("queue/%2F/q", document)))
	d.restart()
	q := d.hosts["/"].FindQueue("q")
	if q == nil || !q.Config().Quorum || !cmp.Equal(q.Arguments(), arguments) {
		t.Errorf("queue after the start: got %v, want a quorum queue with its arguments", q)
	}
}

func TestLoadRejectsDamagedDocuments(t *testing.T) {
	for name, value := range map[string]string{
		"vhost/%2F":             "{",
		"vhost/%ZZ":             "{}",
		"vhost/a/b":             "{}",
		"exchange/%2F/x":        `{"type":"direct","arguments":"AAAA"}`,
		"queue/%2F/q":           `{"id":"x"}`,
		"queue/%2F/r":           `{"id":1,"arguments":"AAAA"}`,
		"binding/%2F/x/queue/q": "{}",
		"policy/%2F/policy/p":   `{"pattern":"(","apply_to":"all","definition":{"max-length":1}}`,
	} {
		d := openData(t)
		d.add("/")
		d.must(d.store.Wait(context.Background(), d.store.SetDocument(name, []byte(value))))
		if _, err := vhost.Load(d.config()); err == nil || !strings.Contains(err.Error(), "in the data directory: data is damaged") {
			t.Errorf("%s: %s: %v", name, value, err)
		}
	}
}

// A policy whose pattern needs seconds to match the names is refused, because declarations would wait for each match.
func TestExpensivePatternsAreRefused(t *testing.T) {
	d := openData(t)
	v := d.add("/")
	expensive := vhost.Policy{Name: "p", Pattern: "^(a+)+$", Definition: vhost.Definition{"max-length": int64(1)}, ApplyTo: "all"}
	_, err := v.SetPolicy(expensive)
	d.must(err)
	for i := range 50 {
		d.declare(v, fmt.Sprintf("%s%d", strings.Repeat("a", 60), i), true, nil)
	}
	if _, err := v.SetPolicy(expensive); err == nil || !strings.Contains(err.Error(), "too many steps") {
		t.Errorf("expensive pattern: got error %v, want too many steps", err)
	}
	cheap := expensive
	cheap.Pattern = "^a+$"
	_, err = v.SetPolicy(cheap)
	d.must(err)
}

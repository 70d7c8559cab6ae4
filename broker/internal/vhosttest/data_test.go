package vhosttest

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// data is an open data directory with the virtual hosts of its broker.
type data struct {
	t        *testing.T
	fs       diskstore.FS
	store    store.Store
	registry *registry.Registry
	hosts    map[string]*vhost.VHost
}

func openData(t *testing.T) *data {
	d := &data{t: t, fs: vfs.NewMem()}
	d.open()
	t.Cleanup(d.close)
	return d
}

func (d *data) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *data) config() vhost.Config {
	return vhost.Config{Log: slog.New(slog.DiscardHandler), Meter: queue.NewMeter(math.MaxInt64), Store: d.store, Registry: d.registry}
}

func (d *data) open() {
	d.t.Helper()
	var err error
	d.store, err = diskstore.Open(diskstore.Options{Dir: "data", Log: slog.New(slog.DiscardHandler), FS: d.fs})
	d.must(err)
	d.registry, err = registry.New(d.store)
	d.must(err)
	d.hosts, err = vhost.Load(d.config())
	d.must(err)
}

func (d *data) close() {
	for _, v := range d.hosts {
		v.Close()
	}
	d.registry.Close()
	d.must(d.store.Close(true))
}

func (d *data) restart() {
	d.t.Helper()
	d.close()
	d.open()
}

func (d *data) add(name string) *vhost.VHost {
	v := vhost.New(name, d.config())
	d.hosts[name] = v
	return v
}

func (d *data) declare(v *vhost.VHost, name string, durable bool, args amqpwire.Table) *vhost.Queue {
	d.t.Helper()
	q, err := v.DeclareQueue(&amqpwire.QueueDeclare{Queue: name, Durable: durable, Arguments: args}, nobody, anything)
	d.must(err)
	return q
}

func (d *data) exchange(v *vhost.VHost, name, kind string, durable bool, args amqpwire.Table) {
	d.t.Helper()
	d.must(v.DeclareExchange(&amqpwire.ExchangeDeclare{Exchange: name, Type: kind, Durable: durable, Arguments: args}))
}

var nobody = new(int)

func anything(string) error { return nil }

func persistently(key, body string) *queue.Message {
	return &queue.Message{RoutingKey: key, Body: []byte(body), TTL: queue.NoTTL, Persistent: true}
}

func toQueue(source, queue, key string, args amqpwire.Table) vhost.BindingInfo {
	return vhost.BindingInfo{Source: source, Destination: queue, Key: key, Arguments: args}
}

func toExchange(source, target, key string, args amqpwire.Table) vhost.BindingInfo {
	return vhost.BindingInfo{Source: source, Destination: target, ToExchange: true, Key: key, Arguments: args}
}

// snapshot is the content of the virtual hosts in a comparable form.
type snapshot map[string]hostSnapshot

type hostSnapshot struct {
	About     vhost.About
	Exchanges []vhost.ExchangeInfo
	Queues    []queueSnapshot
	Bindings  []vhost.BindingInfo
	Policies  []vhost.Definition // of exchanges and then queues
}

type queueSnapshot struct {
	Name                string
	Durable, AutoDelete bool
	Arguments           amqpwire.Table
	Quorum              bool
	Ready               int
}

func (d *data) snapshot() snapshot {
	all := make(snapshot)
	for name, v := range d.hosts {
		h := hostSnapshot{About: v.About(), Exchanges: v.Exchanges(), Bindings: v.Bindings()}
		slices.SortFunc(h.Bindings, func(a, b vhost.BindingInfo) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for i := range h.Exchanges {
			x := &h.Exchanges[i]
			h.Policies = append(h.Policies, x.Applied.Definition())
			x.Applied = vhost.Applied{}
		}
		for _, q := range v.Queues() {
			h.Policies = append(h.Policies, q.Applied().Definition())
			h.Queues = append(h.Queues, queueSnapshot{
				q.Name(), q.Durable, q.AutoDelete, q.Arguments(), q.Config().Quorum, q.Stats().Ready,
			})
		}
		all[name] = h
	}
	return all
}

package vhosttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// After a power failure at any time, the broker can load its data, and the data contains all confirmed changes.
func TestConfirmedChangesSurvivePowerFailure(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0))
		power := vfs.NewCrashableMem()
		before := &data{t: t, fs: power}
		before.open()
		before.add("/")
		for range random.IntN(60) {
			before.change(random)
		}
		synced := seed%2 == 0
		if synced {
			before.must(before.registry.Sync(context.Background()))
		}
		want := before.snapshot()
		after := &data{t: t, fs: power.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})}
		before.close()
		after.open()
		if diff := cmp.Diff(want, after.snapshot()); synced && diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
		after.restart() // save the removals of the first start
		after.close()
	}
}

// After a power failure at any time, an object whose deletion was confirmed does not return.
func TestConfirmedDeletionSurvivesPowerFailure(t *testing.T) {
	for name, remove := range map[string]func(d *data, v *vhost.VHost, q *vhost.Queue){
		"purge": func(_ *data, _ *vhost.VHost, q *vhost.Queue) { q.Purge() },
		"delete": func(d *data, v *vhost.VHost, q *vhost.Queue) {
			_, err := v.DeleteQueue(q, queue.Condition{})
			d.must(err)
		},
		"vhost": func(_ *data, v *vhost.VHost, _ *vhost.Queue) { v.Forget(); v.Delete() },
	} {
		t.Run(name, func(t *testing.T) {
			power := vfs.NewCrashableMem()
			before := &data{t: t, fs: power}
			before.open()
			v := before.add("/")
			q := before.declare(v, "q", true, nil)
			for range 5 {
				_, _, err := v.Publish(persistently("q", "body"))
				before.must(err)
			}
			remove(before, v, q)
			before.must(v.Sync(context.Background()))
			after := &data{t: t, fs: power.CrashClone(vfs.CrashCloneCfg{})}
			before.close()
			after.open()
			defer after.close()
			for _, v := range after.hosts {
				for _, q := range v.Queues() {
					if ready := q.Stats().Ready; name != "purge" || ready > 0 {
						t.Errorf("queue %s exists with %d messages", q.Name(), ready)
					}
				}
			}
			if left, err := after.store.Queues(); err != nil || name != "purge" && len(left) > 0 {
				t.Errorf("store still has messages of the queues %v (%v)", left, err)
			}
		})
	}
}

// change performs a random action on one of a few objects.
func (d *data) change(random *rand.Rand) {
	v := d.hosts["/"]
	if v == nil {
		v = d.add("/")
	}
	name := func() string { return fmt.Sprint(random.IntN(4)) }
	var err error
	switch random.IntN(9) {
	case 0, 1:
		err = v.DeclareExchange(&amqpwire.ExchangeDeclare{Exchange: name(), Type: "topic", Durable: true})
	case 2, 3:
		_, err = v.DeclareQueue(&amqpwire.QueueDeclare{Queue: name(), Durable: true}, nobody, anything)
	case 4, 5:
		_ = v.Bind(toQueue(name(), name(), name(), nil), nobody) // exchange or queue may be missing
	case 6:
		_ = v.Bind(toExchange(name(), name(), name(), every), nobody)
	case 7:
		err = v.DeleteExchange(name(), false)
	case 8:
		switch q, notFound := v.Queue(name(), nobody); {
		case notFound == nil:
			_, err = v.DeleteQueue(q, queue.Condition{})
		case random.IntN(10) == 0:
			v.Forget()
			v.Delete()
			delete(d.hosts, "/")
		}
	}
	d.must(err)
}

// A message for several queues is durable when all queues that save it have it on the disk, whichever order they have.
func TestMessageOfSeveralQueuesIsDurableInAll(t *testing.T) {
	d := openData(t)
	v := d.add("/")
	saved, unsaved := d.declare(v, "saved", true, nil), d.declare(v, "unsaved", false, nil)
	for _, queues := range [][]*vhost.Queue{{saved, unsaved}, {unsaved, saved}} {
		accepted, commit := vhost.Deliver(persistently("", "body"), queues)
		if !accepted || commit == 0 {
			t.Errorf("%v: got accepted %v, commit %d, want true and the commit of queue saved", queues, accepted, commit)
		}
	}
}

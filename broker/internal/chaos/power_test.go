package chaos

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/chaos/load"
)

const sample = 6 // number of rounds in each run of the tests

var rounds = flag.Int("chaos.rounds", sample, "three times the number of brokers whose power is cut; beyond the default, some are under a dense load")

// poweredBroker is a broker on a disk whose power the test can cut.
type poweredBroker struct {
	*node.Node
	disk  *vfs.MemFS
	store store.Store
}

func powerUp(t *testing.T, disk *vfs.MemFS) *poweredBroker {
	t.Helper()
	return powerUpAfter(t, disk, func() {})
}

// powerUpAfter starts a broker on a disk. It calls the function do after it has opened the store and before the broker
// reads the store.
func powerUpAfter(t *testing.T, disk *vfs.MemFS, do func()) *poweredBroker {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	p := &poweredBroker{disk: disk}
	var err error
	if p.store, err = diskstore.Open(diskstore.Options{Dir: "data", Log: log, FS: disk}); err != nil {
		t.Fatal(err)
	}
	do()
	p.Node, err = node.New(node.Config{
		Log:         log,
		Sessions:    session.Config{ChannelMax: 2047, FrameMax: 131072, MaxMessageSize: 1 << 20},
		MemoryLimit: 1 << 30, Resident: 16 << 10,
		Store: p.store,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Access.SetUser(access.User{Name: "guest", Hash: access.HashPassword("guest"), Tags: []string{"administrator"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Access.SetPermission(access.Permission{User: "guest", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	p.Begin()
	return p
}

func (p *poweredBroker) dial() (*amqp.Connection, error) {
	return amqp.DialConfig("amqp://guest:guest@broker", amqp.Config{Dial: func(string, string) (net.Conn, error) {
		client, server := net.Pipe()
		return client, p.Serve(server)
	}})
}

// off stops a broker without waiting for its clients.
func (p *poweredBroker) off(t *testing.T) {
	t.Helper()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Shutdown(gone)
	if err := p.store.Close(true); err != nil {
		t.Error(err)
	}
}

// A power failure at any time can remove any part of the unsynced data from the disk. The broker must then start with
// all confirmed messages.
func TestPowerFailureAtAnyTime(t *testing.T) {
	brokers := uint64(max(2, *rounds/3))
	if testing.Short() {
		brokers = 1
	}
	for seed := range brokers {
		longest := 3 * time.Millisecond // results in about 6,000 messages in six runs of the broker
		if *rounds > sample && seed%4 == 0 {
			longest = 300 * time.Microsecond // results in ten times as many messages
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cutPower(t, seed, longest) })
		})
	}
}

// cutPower cuts the power of a broker six times. Publishers pause between two messages, at most for the duration
// longest.
func cutPower(t *testing.T, seed uint64, longest time.Duration) {
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	between := func(most time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(most)))
	}
	// Without a pause, virtual time would not advance.
	pause := func() { time.Sleep(between(longest)) }
	l := load.NewLedger(t)
	disk := vfs.NewCrashableMem()
	for range 6 {
		p := powerUp(t, disk)
		u := &load.Use{Ledger: l, Dial: p.dial, Pause: pause}
		u.Begin(t)
		time.Sleep(between(400 * time.Millisecond))
		l.End()
		disk = disk.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: int(between(101)), RNG: rand.New(rand.NewPCG(seed, uint64(l.Lives()))),
		})
		p.off(t)
		u.Lost()
	}
	p := powerUp(t, disk)
	done, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	u := &load.Use{Ledger: l, Dial: p.dial, Pause: pause, Done: done}
	u.Begin(t)
	<-done.Done()
	u.Finish(t)
	p.off(t)
	l.Check()
}

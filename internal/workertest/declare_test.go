package workertest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestDeclareExplainsRefusals(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue, exchange := testkit.Name(t, "q"), testkit.Name(t, "x")
		r.deleteQueues(queue)
		r.deleteExchanges(exchange)
		standing := topology.Topology{
			Queues:    []topology.Queue{{Name: queue, Args: topology.Table{"x-message-ttl": 1000}}},
			Exchanges: []topology.Exchange{{Name: exchange, Kind: topology.Direct}},
		}
		for range 2 {
			if err := c.Declare(t.Context(), standing); err != nil {
				t.Fatal(err)
			}
		}
		for _, tc := range []struct {
			name, kind, object, want string
			t                        topology.Topology
		}{
			{
				"argument", "queue", queue, "already exists with a different x-message-ttl: the broker has '1000', the declaration has '2000'; correct the declaration, use another name, or delete the object if it is empty",
				topology.Topology{Queues: []topology.Queue{{Name: queue, Args: topology.Table{"x-message-ttl": 2000}}}},
			},
			{
				"missing argument", "queue", queue, "already exists with a different x-message-ttl: the broker has the value '1000' of type",
				topology.Topology{Queues: []topology.Queue{{Name: queue}}},
			},
			{
				"kind", "exchange", exchange, "already exists with a different type: the broker has 'direct', the declaration has 'fanout'",
				topology.Topology{Exchanges: []topology.Exchange{{Name: exchange, Kind: topology.Fanout}}},
			},
			{
				"bad argument", "queue", queue + "x", "the broker does not accept these arguments",
				topology.Topology{Queues: []topology.Queue{{Name: queue + "x", Args: topology.Table{"x-message-ttl": "soon"}}}},
			},
			{
				"binding to missing queue", "binding", exchange + " → nothing", "another object that it needs was not found",
				topology.Topology{Bindings: []topology.Binding{{Exchange: exchange, Queue: "nothing"}}},
			},
			{
				"reserved name", "queue", "amq.mine", "it does not exist, or the user has no permission for it, or its name is reserved",
				topology.Topology{Queues: []topology.Queue{{Name: "amq.mine", IfAbsent: true}}},
			},
		} {
			t.Run(tc.name, func(t *testing.T) {
				err := c.Declare(t.Context(), tc.t)
				e, ok := errors.AsType[*reprise.DeclareError](err)
				if !ok || e.Kind != tc.kind || e.Name != tc.object || !strings.Contains(e.Advice, tc.want) {
					t.Errorf("got %v, want advice %q", err, tc.want)
				}
				if _, ok := errors.AsType[*amqp.Error](err); !ok {
					t.Errorf("error %v does not wrap the error of the broker", err)
				}
			})
		}
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{}}}); err == nil {
			t.Error("Declare accepted a queue without a name")
		}
		large := topology.Topology{Queues: []topology.Queue{{Name: queue + "x", Args: topology.Table{"x-large": strings.Repeat("x", 1<<20)}}}}
		if err := c.Declare(t.Context(), large); err == nil || errors.Is(err, reprise.ErrDisconnected) || !strings.Contains(err.Error(), "must fit into a frame") {
			t.Errorf("arguments that exceed a frame: got %v", err)
		}
	})
}

// A queue with a dead-letter exchange requires two further permissions. The advice names the missing one.
func TestRefusedDeadLetterExchangeIsExplained(t *testing.T) {
	t.Parallel()
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		r := newRaw(t, b.URL)
		url := otherUser(t, b.URL, api)
		permit(t, api, url, ".*", "^$")
		c := dial(t, url)
		queue := testkit.Name(t, "queue")
		r.deleteQueues(queue)
		err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{
			Name: queue, Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
		}}})
		e, ok := errors.AsType[*reprise.DeclareError](err)
		if want := `requires the write permission for the exchange "amq.default"`; !ok || !strings.Contains(e.Advice, want) {
			t.Errorf("got %v, want advice %q", err, want)
		}
	})
}

// dialFailingDeclare connects to a broker in memory that responds to the first declaration of a queue with an internal
// error that contains the given reason.
func dialFailingDeclare(t *testing.T, reason string) client {
	t.Helper()
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
	var stumbled atomic.Bool
	rewrite := func(frame []byte) []byte {
		queueDeclareOK := []byte{0, 50, 0, 11}
		if frame[0] != 1 || !bytes.HasPrefix(frame[7:], queueDeclareOK) || stumbled.Swap(true) {
			return frame
		}
		text := append([]byte{byte(len(reason))}, reason...)
		method := slices.Concat([]byte{0, 10, 0, 50, 541 >> 8, 541 & 0xff}, text, []byte{0, 50, 0, 10})
		return slices.Concat([]byte{1, 0, 0, 0, 0, 0, byte(len(method))}, method, []byte{0xce})
	}
	return dial(t, "amqp://guest:guest@memory", func(c *reprise.Config) {
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := b.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return relay(conn, rewrite), nil
		}
	})
}

func TestWorkerSurvivesInternalErrorOfDeclaration(t *testing.T) {
	t.Parallel()
	start(t, dialFailingDeclare(t, "INTERNAL_ERROR"), reprise.WorkerConfig{Queue: "work", Handler: newScript(func(*reprise.Delivery) error { return nil })})
}

func TestWorkerReturnsErrorForForbiddenDeclaration(t *testing.T) {
	t.Parallel()
	c := dialFailingDeclare(t, "INTERNAL_ERROR - Feature `transient_nonexcl_queues` is deprecated.")
	w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "work", Handler: newScript(nil)})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(t.Context())
	if e, ok := errors.AsType[*reprise.DeclareError](err); !ok || !strings.Contains(e.Advice, "deprecated feature") {
		t.Errorf("got %v, want DeclareError with advice", err)
	}
}

func TestWorkerDoesNotModifyExistingQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		if _, err := r.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-message-ttl": int32(3_600_000)}); err != nil {
			t.Fatal(err)
		}
		h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		r.publish("", queue, amqp.Publishing{})
		r.take(queue + ".failed")
	})
}

func TestWorkerDeclaresItsQueues(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(m *reprise.Delivery) error {
			if m.Attempt == 1 {
				return errScripted
			}
			return nil
		})
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(2)})
		r.publish("", queue, amqp.Publishing{})
		h.wait(t, 2)
		// Declarations with exactly these arguments are equivalent.
		for name, args := range map[string]amqp.Table{
			queue: {
				"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue + ".failed",
				"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
				"x-delivery-limit": int64(20),
			},
			queue + ".failed": {"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32)},
			queue + ".wait.0-1000": {
				"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
				"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
			},
		} {
			if _, err := r.QueueDeclare(name, true, false, false, false, args); err != nil {
				t.Errorf("cannot declare %s: %v", name, err)
				r.reopen()
			}
		}
	})
}

func TestRunReturnsConflictOfArguments(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		if _, err := r.QueueDeclare(queue+".failed", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		w, err := reprise.NewWorker(dial(t, b.URL).Client, reprise.WorkerConfig{
			Queue: queue, Strategy: strategy, Handler: newScript(func(*reprise.Delivery) error { return nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		err = w.Run(t.Context())
		if e, ok := errors.AsType[*reprise.DeclareError](err); !ok || e.Name != queue+".failed" || !strings.Contains(err.Error(), "x-queue-type") {
			t.Errorf("got %v, want DeclareError for the failed queue", err)
		}
	})
}

// The error of Declare reports whether the caller should try again.
func TestDeclareTimesOutWithoutResponse(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		var reading sync.RWMutex
		c := dial(t, b.URL, dialBlockable(&reading, consumes), func(c *reprise.Config) { c.ConfirmTimeout = 100 * time.Millisecond })
		reading.Lock()
		err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "q"}}})
		reading.Unlock()
		if !errors.Is(err, reprise.ErrDisconnected) || !strings.Contains(err.Error(), "did not answer within 100ms") {
			t.Errorf("got %v, want ErrDisconnected after 100ms", err)
		}
	})
}

func TestDeclareReportsLostConnection(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL())
		queue := topology.Topology{Queues: []topology.Queue{{Name: testkit.Name(t, "q")}}}
		newRaw(t, b.URL).deleteQueues(queue.Queues[0].Name)
		// The handshakes of two connections (3 each), and two publishing channels (2 each).
		testkit.Eventually(t, timeout, func() bool { return proxy.Frames(testkit.ToClient) == 2*3+2*2 })
		lost := proxy.CutBeforeFrame(testkit.ToClient, 2)
		err := c.Declare(t.Context(), queue)
		<-lost
		if !errors.Is(err, reprise.ErrDisconnected) {
			t.Errorf("got %v, want ErrDisconnected", err)
		}
		testkit.Eventually(t, timeout, func() error { return c.Declare(t.Context(), queue) })
	})
}

// A declaration reports all conflicts, and a check reports them without declaring other objects.
func TestDeclareReportsAllConflicts(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		exchange, plain := testkit.Name(t, "x"), r.declareQueue()
		r.deleteExchanges(exchange)
		if err := r.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		cfg := reprise.WorkerConfig{
			Queue: queue, Strategy: strategy, Handler: newScript(func(*reprise.Delivery) error { return nil }),
			Topology: topology.Topology{
				Exchanges: []topology.Exchange{{Name: exchange, Kind: topology.Direct}},
				Queues:    []topology.Queue{{Name: plain, Args: topology.Table{"x-max-priority": 3}}},
			},
		}
		w, err := reprise.NewWorker(c.Client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		conflicts := func(err error) {
			t.Helper()
			for _, name := range []string{exchange, plain} {
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("got %v, want the conflict of %s", err, name)
				}
			}
		}
		conflicts(w.Check(t.Context()))
		if _, err := c.Depth(t.Context(), queue); err == nil {
			t.Error("the check has declared the work queue")
		}
		conflicts(w.Run(t.Context()))

		// With KeepDeclaring, the worker starts as soon as the conflicts are resolved.
		cfg.KeepDeclaring = true
		waiting, err := reprise.NewWorker(c.Client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- waiting.Run(ctx) }()
		c.log.wait(t, "consuming interrupted", 1)
		conflicts(waiting.Status().Err)
		if _, err := r.QueueDelete(plain, false, false, false); err != nil {
			t.Fatal(err)
		}
		if err := r.ExchangeDelete(exchange, false, false); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, timeout, func() bool { return waiting.Status().Err == nil })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

var every = flag.Int("migrate.every", 0, "kill migrations at every n-th frame and request; 0: at a few of them")

// killer ends a migration as a killed process does: from a frame or a request on, nothing reaches the broker, or
// nothing reaches the migration.
type killer struct {
	http.RoundTripper
	proxy *testkit.Proxy
	kill  context.CancelFunc

	mu       sync.Mutex
	requests int
	at       int // number of the request; 0: none
	lost     bool
	dead     bool
}

var errKilled = errors.New("killed")

// RoundTrip implements [http.RoundTripper].
func (k *killer) RoundTrip(r *http.Request) (*http.Response, error) {
	k.mu.Lock()
	k.requests++
	now := k.requests == k.at
	dead, lost := k.dead || now, k.lost
	k.dead = dead
	k.mu.Unlock()
	if dead && !(now && lost) {
		k.end(now)
		return nil, errKilled
	}
	answer, err := k.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(text))
	if now {
		k.end(true)
		return nil, errKilled
	}
	return answer, err
}

// end ends the migration.
func (k *killer) end(now bool) {
	if !now {
		return
	}
	k.proxy.Refuse()
	k.proxy.Cut()
	k.kill()
}

// point is a place at which a migration is killed.
type point struct {
	place string // request, response, frame, answer
	n     int
}

// run runs a migration and kills it at a point. It returns the numbers of frames to the server, of frames to the client, and of requests.
func (f *fixture) run(t *testing.T, at point, c migrate.Change) (result migrate.Result, counts map[string]int, err error) {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	proxy := testkit.NewProxy(t, f.url)
	k := &killer{RoundTripper: f.api.Client.Transport, proxy: proxy, kill: kill}
	var cut <-chan struct{}
	switch at.place {
	case "request", "response":
		k.at, k.lost = at.n, at.place == "response"
	case "frame":
		cut = proxy.CutAfterFrame(testkit.ToServer, at.n)
	case "answer":
		cut = proxy.CutBeforeFrame(testkit.ToClient, at.n)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-cut:
			proxy.Refuse()
			k.mu.Lock()
			k.dead = true
			k.mu.Unlock()
			kill()
		case <-ctx.Done():
		}
	})
	api := f.api
	api.Client = &http.Client{Transport: k}
	result, err = f.migrate(ctx, t, proxy.URL(), api, c)
	counts = map[string]int{
		"frame": proxy.Frames(testkit.ToServer), "answer": proxy.Frames(testkit.ToClient), "request": k.requests, "response": k.requests,
	}
	kill()
	watching.Wait()
	proxy.Refuse()
	proxy.Cut()
	return result, counts, err
}

// load publishes messages, one at a time, from several connections, and counts those that the broker confirms.
type load struct {
	wg        sync.WaitGroup
	mu        sync.Mutex
	confirmed []string
}

func (f *fixture) load(t *testing.T, exchange, key string, n int) *load {
	t.Helper()
	l := &load{}
	client, err := reprise.Dial(t.Context(), f.url, &reprise.Config{Name: "load"})
	if err != nil {
		t.Fatal(err)
	}
	l.wg.Go(func() {
		defer client.Close(context.Background())
		for i := range n {
			body := fmt.Sprintf("load-%d", i)
			if client.Publish(t.Context(), &reprise.Message{Exchange: exchange, RoutingKey: key, Body: []byte(body)}) == nil {
				l.mu.Lock()
				l.confirmed = append(l.confirmed, body)
				l.mu.Unlock()
			}
		}
	})
	return l
}

// conserved checks that all confirmed messages are in the list, and that the list has at most the given number of duplicates.
func conserved(t *testing.T, confirmed, got []string, duplicates int64) {
	t.Helper()
	counts := map[string]int{}
	for _, body := range got {
		counts[body]++
	}
	lost := slices.DeleteFunc(slices.Clone(confirmed), func(body string) bool { return counts[body] > 0 })
	if len(lost) > 0 {
		t.Errorf("lost %d of %d messages: %.10q", len(lost), len(confirmed), lost)
	}
	if n := int64(len(got) - len(counts)); n > duplicates {
		t.Errorf("got %d duplicates, want at most %d", n, duplicates)
	}
}

// scenario is a migration that is killed.
type scenario struct {
	name     string
	exchange string // "": by the name of the queue
	change   migrate.Change
}

var scenarios = []scenario{
	{"keep", "shop", migrate.Change{Queue: "orders", Delete: true, Set: quorum}},
	{"rename", "shop", migrate.Change{Queue: "orders", Delete: true, To: "orders.v2", Set: topology.Table{"x-max-priority": int64(3)}}},
	{"disconnect", "", migrate.Change{Queue: "orders", Set: topology.Table{"x-message-ttl": int64(3600000)}, Disconnect: true}},
	{"ordered", "shop", migrate.Change{Queue: "orders", Set: topology.Table{"x-dead-letter-exchange": "other"}, Disconnect: true, Ordered: true}},
}

// A migration that is killed at any frame or request continues, and loses no message.
func TestKilledMigrationContinues(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, f *fixture) {
				f.settle, f.batch = time.Millisecond, 8
				counts := f.killed(t, s, point{})
				for _, place := range []string{"frame", "answer", "request", "response"} {
					step := *every
					if step == 0 {
						step = max(1, counts[place]/4)
						if f.IsRabbitMQ {
							step = max(1, counts[place]/2)
						}
					}
					for n := step; n <= counts[place]; n += step {
						f.killed(t, s, point{place, n})
						if t.Failed() {
							t.Fatalf("killed at %s %d of %d:\n%s", place, n, counts[place], strings.Join(f.steps, "\n"))
						}
					}
				}
			})
		})
	}
}

// killed kills a migration at a point, and continues it. It returns the numbers of frames and requests of the first run.
func (f *fixture) killed(t *testing.T, s scenario, at point) map[string]int {
	t.Helper()
	f.steps = nil
	const backlog, arriving = 20, 20
	if f.ch.IsClosed() {
		f.ch = f.open(t)
	}
	f.queue(t, "orders", nil)
	key := "orders"
	if s.exchange != "" {
		key = "new"
		f.bound(t, s.exchange, "orders", key)
	}
	f.publish(t, s.exchange, key, "old", backlog)
	arrivals := f.load(t, s.exchange, key, arriving)
	result, counts, err := f.run(t, at, s.change)
	killed := err
	total := result.Duplicates
	for err != nil {
		f.steps = append(f.steps, "killed: "+err.Error())
		testkit.Eventually(t, 3*time.Minute, func() error {
			if result, _, err = f.run(t, point{}, s.change); errors.Is(err, migrate.ErrRunning) {
				return err
			}
			return nil
		})
		if err != nil {
			t.Errorf("%v: cannot continue: %v (killed: %v)", at, err, killed)
			break
		}
		total = result.Duplicates
	}
	arrivals.wg.Wait()
	if f.ch.IsClosed() {
		f.ch = f.open(t)
	}
	queue := s.change.Queue
	if s.change.To != "" {
		queue = s.change.To
	}
	for k, v := range s.change.Set {
		if args := f.arguments(t, queue); fmt.Sprint(args[k]) != fmt.Sprint(v) {
			t.Errorf("%v: got arguments %v", at, args)
		}
	}
	f.clean(t, queue)
	confirmed := arrivals.confirmed
	for i := range backlog {
		confirmed = append(confirmed, fmt.Sprintf("old-%d", i))
	}
	conserved(t, confirmed, f.bodies(t, queue), total)
	if _, err := f.ch.QueueDelete(queue, false, false, false); err != nil {
		t.Error(err)
	}
	return counts
}

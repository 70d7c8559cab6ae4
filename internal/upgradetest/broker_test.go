package upgradetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
	"github.com/reprisemq/reprise/topology/preset"
)

// design is a work queue and the route of its retries.
type design struct {
	name          string
	config        reprise.WorkerConfig
	exchange, key string
	failed        string
}

func queueDesign(name string, route topology.Route) design {
	return design{
		name: name, key: name, failed: topology.FailedQueue(name),
		config: reprise.WorkerConfig{Queue: name, Policy: policy(), Strategy: topology.Strategy{Route: route}},
	}
}

func policy() reprise.Policy {
	return reprise.Policy{MaxAttempts: 4, Backoff: backoff.List{10 * time.Minute, 20 * time.Minute, time.Hour}}
}

// designs returns the designs that have fixtures. The fixtures contain the queues of each design, so do not change a design.
// Add a new design instead.
func designs() []design {
	classic := queueDesign("classic", nil)
	classic.config.Topology.Queues = []topology.Queue{{Name: "classic", Args: topology.Table{"x-queue-type": "classic"}}}
	coverArt := preset.CoverArt{RetryDelay: 10 * time.Minute, Retries: 3, QueueType: "quorum"}
	staking := preset.Staking{Queues: []string{"staking"}, RetryDelay: 10 * time.Minute, QueueType: "quorum"}
	workRetry := preset.WorkRetry{Prefix: "wr.", RetryDelay: 10 * time.Minute}
	cdnPurge := preset.CDNPurge{First: 10 * time.Minute, Max: time.Hour, Jitter: -1}
	return []design{
		queueDesign("buckets", nil),
		classic,
		queueDesign("levels", topology.Levels{}),
		queueDesign("deadletter", topology.DeadLettering{Delay: 10 * time.Minute}),
		queueDesign("delayed", topology.DelayedRetry{Min: 10 * time.Minute, Max: time.Hour}),
		{
			name: "coverart", exchange: "cover-art-archive", key: "index", failed: preset.CoverArtFailedQueue,
			config: reprise.WorkerConfig{Queue: "cover-art-archive.index", Strategy: coverArt.Strategy()},
		},
		{
			name: "staking", key: "staking", failed: "staking_failed",
			config: reprise.WorkerConfig{Queue: "staking", Strategy: staking.Strategy(), Policy: policy()},
		},
		{
			name: "workretry", exchange: "wr.WorkExchange", failed: workRetry.Queue() + ".failed",
			config: reprise.WorkerConfig{Queue: workRetry.Queue(), Strategy: workRetry.Strategy(), Policy: policy()},
		},
		{
			name: "cdnpurge", exchange: "cdn-purge", key: "tag", failed: "cdn-purge.failed",
			config: reprise.WorkerConfig{Queue: "cdn-purge", Strategy: cdnPurge.Strategy(), Policy: policy()},
		},
	}
}

// record is a log with one line for each event.
type record struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func (r *record) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%-10s ", time.Since(r.began).Round(time.Second))+fmt.Sprintf(format, args...))
}

// result returns the lines. It sorts lines of the same second, because such events occur in random order.
func (r *record) result() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.lines, func(a, b string) int {
		at := func(line string) time.Duration {
			d, _ := time.ParseDuration(strings.Fields(line)[0])
			return d
		}
		if at(a) != at(b) {
			return int(at(a)/time.Second - at(b)/time.Second)
		}
		return strings.Compare(a, b)
	})
	return strings.Join(r.lines, "\n") + "\n"
}

// work runs a worker of a design. The body of a message determines the result: "fail N" fails N times, "exhaust" always
// fails, "park" parks the message, and any other body succeeds.
func (r *record) work(t testing.TB, b *reprisetest.Broker, d design) *reprisetest.Worker {
	c := d.config
	c.Handler = reprise.HandlerFunc(func(_ context.Context, m *reprise.Message) error {
		r.add("attempt %d of %q, %d errors, id %s", m.Attempt, m.Body, len(m.Errors), m.MessageID)
		var n int
		switch _, err := fmt.Sscanf(string(m.Body), "fail %d", &n); {
		case string(m.Body) == "park":
			return reprise.Park(errors.New("cannot be handled"))
		case string(m.Body) == "exhaust", err == nil && m.Attempt <= n:
			return errors.New("not yet")
		}
		return nil
	})
	return b.Work(t, c)
}

func (d design) publish(t testing.TB, b *reprisetest.Broker, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		b.Publish(t, &reprise.Message{
			Exchange: d.exchange, RoutingKey: d.key, Body: []byte(body),
			MessageID: strings.ReplaceAll(body, " ", "-"), CorrelationID: "c", ContentType: "text/plain",
			Headers: topology.Table{"number": int16(7), "nested": topology.Table{"list": []any{"a", true}}},
		})
	}
}

func start(t testing.TB, dir string) *reprisetest.Broker {
	t.Helper()
	return reprisetest.Config{Broker: broker.Config{Store: disk.Dir(dir)}}.New(t)
}

// channel opens a channel with a plain AMQP client.
func channel(t testing.TB, b *reprisetest.Broker) (ch *amqp.Channel, end func()) {
	t.Helper()
	conn := value(amqp.DialConfig(b.URL(), amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return b.DialContext(context.Background(), network, addr)
	}}))(t)
	return value(conn.Channel())(t), func() { _ = conn.Close() }
}

// attempts waits until a message has had n attempts.
func (r *record) attempts(body string, n int) {
	for {
		r.mu.Lock()
		found := slices.ContainsFunc(r.lines, func(l string) bool { return strings.Contains(l, fmt.Sprintf("attempt %d of %q", n, body)) })
		r.mu.Unlock()
		if found {
			synctest.Wait() // until the copy is in the wait queue
			return
		}
		time.Sleep(time.Second)
	}
}

// write fills a data directory, and returns the virtual time that this took.
func write(t *testing.T, d design, dir string) (lived time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		r := &record{began: time.Now()}
		b := start(t, dir)
		w := r.work(t, b, d)
		d.publish(t, b, "fail 3", "park", "done")
		r.attempts("fail 3", 2)
		d.publish(t, b, "fail 2", "exhaust")
		r.attempts("exhaust", 1)
		must(t, b.Client(t, nil).PublishIn(t.Context(), 150*time.Minute, &reprise.Message{
			Exchange: d.exchange, RoutingKey: d.key, Body: []byte("fail 1, scheduled"), MessageID: "scheduled",
		}))
		must(t, w.Stop())
		d.publish(t, b, "delivered", "fail 1")
		ch, end := channel(t, b)
		if _, ok, err := ch.Get(d.config.Queue, false); err != nil || !ok {
			t.Fatalf("cannot get a message: %v", err)
		}
		defer end()
		must(t, b.Server().Shutdown(t.Context()))
		lived = time.Since(r.began)
	})
	return lived
}

// resume starts a broker and a worker on a data directory that write has filled, and returns the events. lived is the
// duration that write returned.
func resume(t *testing.T, d design, dir string, lived time.Duration) (result string) {
	synctest.Test(t, func(t *testing.T) {
		r := &record{began: time.Now()}
		time.Sleep(lived)
		b := start(t, dir)
		r.add("starts")
		r.work(t, b, d)
		d.publish(t, b, "new: done")
		b.Publish(t, &reprise.Message{Exchange: d.exchange, RoutingKey: d.key, Body: []byte("exhaust"), MessageID: "new"})
		time.Sleep(3 * time.Hour)
		ch, end := channel(t, b)
		for {
			m, ok := value2(ch.Get(d.failed, true))(t)
			if !ok {
				break
			}
			r.add("in %s: %q, id %s, headers %s", d.failed, m.Body, m.MessageId, strings.Join(headers("", m.Headers), " "))
		}
		for _, q := range b.Queues() {
			if n := q.Ready + q.Unacked; n > 0 {
				r.add("left in %s: %d", q.Name, n)
			}
		}
		end()
		result = r.result()
	})
	return result
}

func value2[V any](v V, ok bool, err error) func(t testing.TB) (V, bool) {
	return func(t testing.TB) (V, bool) {
		t.Helper()
		must(t, err)
		return v, ok
	}
}

// headers returns the names and types of headers, and the values that are equal in each run.
func headers(in string, table amqp.Table) (all []string) {
	for name, v := range table {
		name = in + name
		switch v := v.(type) {
		case amqp.Table:
			all = append(all, headers(name+".", v)...)
		case []any:
			all = append(all, fmt.Sprintf("%s(%d)", name, len(v)))
			for _, e := range v[:min(len(v), 1)] {
				if e, ok := e.(amqp.Table); ok {
					all = append(all, headers(name+".", e)...)
				}
			}
		case string, int64, int32, int16, bool:
			if name == "x-reprise-errors.host" || name == "x-reprise-errors.duration-ms" {
				v = "…"
			}
			all = append(all, fmt.Sprintf("%s=%T:%v", name, v, v))
		default:
			all = append(all, fmt.Sprintf("%s=%T", name, v))
		}
	}
	slices.Sort(all)
	return all
}

// layout returns the two format versions of a data directory, which the broker and Pebble define.
func layout(t testing.TB, dir string) string {
	t.Helper()
	format := value(os.ReadFile(filepath.Join(dir, "FORMAT")))(t)
	markers := value(filepath.Glob(filepath.Join(dir, "pebble", "marker.format-version.*")))(t)
	if len(markers) != 1 {
		t.Fatalf("got format markers %v, want one", markers)
	}
	version := markers[0][strings.LastIndexByte(markers[0], '.')+1:]
	return strings.ReplaceAll(strings.TrimSpace(string(format)), " ", "-") + "-pebble-" + version
}

const brokerFixtures = "testdata/broker"

func updateBroker(t *testing.T) {
	for _, d := range designs() {
		dir := filepath.Join(t.TempDir(), "data")
		lived := write(t, d, dir)
		name := filepath.Join(brokerFixtures, layout(t, dir), d.name)
		writeFixture(t, name+".tar.gz", pack(t, dir))
		writeFixture(t, name+".txt", fmt.Appendf(nil, "%s\n%s", lived, resume(t, d, dir, lived)))
	}
}

// This version continues to process waiting, scheduled, parked, ready and delivered messages of an older version
// exactly as the older version would. The directory keeps its format, and failed messages have the same headers, so
// that the older version can use the directory again.
func TestDataDirectoryOfOlderVersion(t *testing.T) {
	for _, name := range matches(t, brokerFixtures+"/*/*.tar.gz") {
		base := strings.TrimSuffix(name, ".tar.gz")
		of := filepath.Base(filepath.Dir(name))
		t.Run(of+"/"+filepath.Base(base), func(t *testing.T) {
			t.Parallel()
			all := designs()
			i := slices.IndexFunc(all, func(d design) bool { return d.name == filepath.Base(base) })
			if i < 0 {
				t.Fatal("design of the fixture not found")
			}
			text := string(value(os.ReadFile(base + ".txt"))(t))
			after, want, _ := strings.Cut(text, "\n")
			dir := unpack(t, name)
			got := resume(t, all[i], dir, value(time.ParseDuration(after))(t))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("this version behaves differently (-then +now):\n%s", diff)
			}
			if now := layout(t, dir); now != of {
				t.Errorf("directory format: got %s, want %s (an older version must be able to read the directory)", now, of)
			}
			if c := value(disk.Check(dir))(t); len(c.Damage) > 0 {
				t.Errorf("damage of the directory: got %v, want none", c.Damage)
			}
		})
	}
}

// Each design has a fixture with the current format.
func TestFixturesOfCurrentFormatExist(t *testing.T) {
	if *update {
		updateBroker(t)
	}
	dir := filepath.Join(t.TempDir(), "data")
	synctest.Test(t, func(t *testing.T) { start(t, dir) })
	for _, d := range designs() {
		matches(t, filepath.Join(brokerFixtures, layout(t, dir), d.name+".tar.gz"))
	}
}

// A broker refuses a data directory with an unknown format, and does not change it.
func TestNewerDataDirectoryIsRefused(t *testing.T) {
	dir := unpack(t, matches(t, brokerFixtures+"/*/buckets.tar.gz")[0])
	must(t, os.WriteFile(filepath.Join(dir, "FORMAT"), []byte("reprise 3\n"), 0o600))
	wantUnchanged(t, dir, func() {
		_, err := broker.New(broker.Config{Store: disk.Dir(dir)})
		if !errors.Is(err, broker.ErrFormat) || !strings.Contains(err.Error(), `has "reprise 3", and this version reads "reprise 2"`) {
			t.Errorf("New: got error %v, want ErrFormat", err)
		}
		to := filepath.Join(t.TempDir(), "copy")
		if err := disk.Copy(dir, to); !errors.Is(err, broker.ErrFormat) {
			t.Errorf("Copy: got error %v, want ErrFormat", err)
		}
	})
}

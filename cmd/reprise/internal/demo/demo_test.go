package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// embedded starts a broker for the test.
func embedded(t *testing.T) *broker.Broker {
	t.Helper()
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return b
}

// quick returns options for a short run.
func quick(t *testing.T, out io.Writer) Options {
	return Options{
		Dial: embedded(t).DialContext, Events: 24, Spread: 24 * time.Millisecond, Seed: 5,
		RetryDelay: 20 * time.Millisecond, Grace: time.Millisecond, Latency: -1, Out: out,
	}
}

func wantAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q not found in\n%s", part, text)
		}
	}
}

func TestDemoOnce(t *testing.T) {
	var out strings.Builder
	b := embedded(t)
	o := quick(t, &out)
	o.Dial, o.Once, o.Grace = b.DialContext, true, 250*time.Millisecond // long enough to debounce a burst
	if err := Run(t.Context(), o); err != nil {
		t.Fatalf("demo failed: %v\n%s", err, &out)
	}
	wantAll(
		t, out.String(), "debounced: replaced by a later equal event", "part of done: replaced by a later equal event",
		"on the embedded broker", "after 20ms (4h in the real system)",
		"✓ 24 = 21 + 3 + 0   every message is accounted for, none was lost",
		"   1 ×  5 attempts   503 SlowDown: PUT mbid-27dd50ed…/index.json: Please reduce your request rate.",
		"   1 ×  1 attempt    delete event: body must have the lines id, gid: got 1 line",
		`   1 ×  1 attempt    move event: "none" is not the MBID of a release`,
		"unknown release, skipped",
	)
	if strings.Contains(out.String(), "\x1b") {
		t.Error("output to a buffer contains control sequences")
	}
	depths := map[string]int{}
	for _, d := range b.Queues() {
		depths[d.Name] = d.Ready + d.Unacked
	}
	if depths[preset.CoverArtFailedQueue] != 3 {
		t.Errorf("failed queue after the ledger: got depths %v, want [preset.CoverArtFailedQueue] 3", depths)
	}
}

// The demo requires only an AMQP connection over the network.
func TestDemoWithBrokerURL(t *testing.T) {
	target := testkit.Embedded(t)
	for range 2 { // the second run finds the failed messages of the first
		var out strings.Builder
		o := quick(t, &out)
		o.Dial, o.BrokerURL, o.Once = nil, target.URL, true
		if err := Run(t.Context(), o); err != nil {
			t.Fatalf("demo failed: %v\n%s", err, &out)
		}
		wantAll(
			t, out.String(), "✓ 24 = 21 + 3 + 0", "on amqp://127.0.0.1:",
			"your broker", "the failed messages in cover-art-archive.failed",
		)
		if strings.Contains(out.String(), "guest") {
			t.Errorf("output shows user and password:\n%s", &out)
		}
	}
}

// notifier closes seen when a given string is written.
type notifier struct {
	out  strings.Builder
	text string
	seen chan struct{}
	once sync.Once
}

func (n *notifier) Write(p []byte) (int, error) {
	if strings.Contains(string(p), n.text) {
		n.once.Do(func() { close(n.seen) })
	}
	return n.out.Write(p)
}

func (n *notifier) String() string { return n.out.String() }

// An interrupt stops the producer. The demo then waits for messages in flight.
func TestInterruptWaitsForMessages(t *testing.T) {
	out := &notifier{text: "  retry   ", seen: make(chan struct{})}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() { <-out.seen; interrupt() }()
	o := quick(t, out)
	o.FaultRate = 0.8
	if err := Run(ctx, o); err != nil {
		t.Fatalf("demo failed: %v\n%s", err, out)
	}
	wantAll(t, out.String(), " + 0   every message is accounted for")
}

// A second interrupt also stops the wait. The ledger counts the remaining messages as waiting.
func TestSecondInterruptStopsImmediately(t *testing.T) {
	out := &notifier{text: "  retry   ", seen: make(chan struct{})}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stopWaiting := make(chan struct{})
	go func() { <-out.seen; interrupt(); close(stopWaiting) }()
	o := quick(t, out)
	o.RetryDelay, o.StopWaiting = time.Hour, stopWaiting
	if err := Run(ctx, o); err != nil {
		t.Fatalf("demo failed: %v\n%s", err, out)
	}
	wantAll(t, out.String(), "every message is accounted for")
	if strings.Contains(out.String(), " + 0   every") {
		t.Errorf("waiting messages: got 0, want more:\n%s", out)
	}
}

func TestInvalidOptions(t *testing.T) {
	dial := (&broker.Broker{}).DialContext
	for want, o := range map[string]Options{
		"Out must not be nil":        {Dial: dial},
		"either Options.Dial":        {Out: io.Discard},
		"or Options.BrokerURL":       {Out: io.Discard, Dial: dial, BrokerURL: "amqp://localhost"},
		"got -1":                     {Out: io.Discard, Dial: dial, Events: -1},
		"must not be negative":       {Out: io.Discard, Dial: dial, Spread: -1},
		"at most 0.9: got 1":         {Out: io.Discard, Dial: dial, FaultRate: 1},
		"must be whole milliseconds": {Out: io.Discard, Dial: dial, RetryDelay: time.Microsecond},
		"amqp://user:password@host":  {Out: io.Discard, BrokerURL: "localhost"},
	} {
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

// The demo does not change queues that another program uses.
func TestDemoRefusesQueuesInUse(t *testing.T) {
	dial := embedded(t).DialContext
	first := &notifier{text: "  done    ", seen: make(chan struct{})}
	ctx, interrupt := context.WithCancel(t.Context())
	o := quick(t, first)
	o.Dial = dial
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	<-first.seen
	second := quick(t, io.Discard)
	second.Dial = dial
	if err := Run(t.Context(), second); err == nil || !strings.Contains(err.Error(), "a separate virtual host") {
		t.Errorf("second demo: got error %v", err)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRedactedOmitsPassword(t *testing.T) {
	if got := redacted("amqp://user:secret@host:1234/demo"); got != "amqp://host:1234/demo" {
		t.Error(got)
	}
	if got := redacted("amqp://user:sec ret@host"); strings.Contains(got, "sec") {
		t.Error(got)
	}
}

func TestCatalog(t *testing.T) {
	catalog, err := loadCatalog()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range catalog {
		if seen[r.GID] || r.Title == "" || r.Artist == "" || len(r.Images) == 0 {
			t.Errorf("invalid release %+v", r)
		}
		seen[r.GID] = true
	}
	if !seen[refusedGID] || seen[unknownGID] {
		t.Error("catalog must contain refusedGID and must not contain unknownGID")
	}
}

// Equal seeds return equal events, and each plan contains all special events.
func TestPlan(t *testing.T) {
	catalog, err := loadCatalog()
	if err != nil {
		t.Fatal(err)
	}
	take := func(seed uint64) string {
		var all []event
		for p := range plan(seed, catalog, 24) {
			if all = append(all, p); len(all) == 24 {
				break
			}
		}
		text, err := json.Marshal(bodies(all))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first, again := take(1), take(1)
	if first != again || first == take(2) {
		t.Error("events must depend only on the seed")
	}
	wantAll(t, take(3), refusedGID, unknownGID, `\nnone"`, `"delete 829521842"`)
}

func bodies(all []event) []string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.kind+" "+p.body)
	}
	return texts
}

// The ledger reports messages as missing if another program removes them from a queue.
func TestLedgerReportsMissingMessages(t *testing.T) {
	out := &notifier{text: "  retry   ", seen: make(chan struct{})}
	o := quick(t, out)
	o.Once, o.RetryDelay, o.timeout = true, time.Hour, 200*time.Millisecond
	thief, err := amqp.DialConfig("amqp://guest:guest@embedded/", amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return o.Dial(context.Background(), network, addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := thief.Channel()
	if err != nil {
		t.Fatal(err)
	}
	stolen := make(chan int)
	go func() {
		<-out.seen
		n := 0
		loot, err := ch.Consume(preset.CoverArtRetryQueue, "", true, false, false, false, nil)
		if err != nil {
			t.Error(err)
		}
		for range loot {
			n++
		}
		stolen <- n
	}()
	if err := Run(t.Context(), o); !errors.Is(err, ErrUnbalanced) {
		t.Errorf("got error %v, want ErrUnbalanced", err)
	}
	if err := thief.Close(); err != nil {
		t.Error(err)
	}
	n := <-stolen
	wantAll(t, out.String(), fmt.Sprintf("missing %8d   in no queue, and not done", n), "messages are missing")
}

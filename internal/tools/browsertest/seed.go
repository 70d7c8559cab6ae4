package browsertest

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/topology"
)

// Clock is the clock of an archive that a test fills with past events. It returns the time of the last Set until Release,
// and otherwise the real time.
type Clock struct{ set atomic.Pointer[time.Time] }

// Set sets the time to t.
func (c *Clock) Set(t time.Time) { c.set.Store(&t) }

// Release switches to the real time.
func (c *Clock) Release() { c.set.Store(nil) }

// Now returns the current time of the clock.
func (c *Clock) Now() time.Time {
	if t := c.set.Load(); t != nil {
		return *t
	}
	return time.Now()
}

// fault describes failures with the same error in a period.
type fault struct {
	queue    string
	n        int
	from, to time.Duration // ago
	attempts int
	error    func(r *rand.Rand) string
	reason   string
}

var faults = []fault{
	{"orders", 214, 26 * time.Hour, 5 * time.Minute, 10, func(r *rand.Rand) string {
		return fmt.Sprintf("charge order %d: POST https://payments.example.com/v2/charges: 503 Service Unavailable (request %s)", 40000+r.IntN(9000), hexID(r, 12))
	}, ""},
	{"orders", 61, 3 * time.Hour, 2 * time.Minute, 10, func(r *rand.Rand) string {
		return fmt.Sprintf("charge order %d: dial tcp 10.4.%d.%d:5432: connect: connection refused", 40000+r.IntN(9000), r.IntN(16), r.IntN(250))
	}, ""},
	{"orders", 17, 20 * 24 * time.Hour, 30 * time.Hour, 1, func(r *rand.Rand) string {
		return fmt.Sprintf("decode order: json: cannot unmarshal string into Go struct field Order.items.%d.quantity of type int", r.IntN(3))
	}, "its rule allows 1 attempt"},
	{"orders", 9, 6 * 24 * time.Hour, 9 * time.Hour, 10, func(r *rand.Rand) string {
		return fmt.Sprintf("reserve stock for order %d: sku %q is not in warehouse %d", 40000+r.IntN(9000), fmt.Sprintf("SKU-%04d", r.IntN(9999)), 1+r.IntN(4))
	}, ""},
	{"invoices", 88, 9 * 24 * time.Hour, time.Hour, 12, func(r *rand.Rand) string {
		return fmt.Sprintf("render invoice 2026-%05d: template \"footer\" failed at line %d: nil pointer evaluating *Company.VAT", r.IntN(99999), 10+r.IntN(80))
	}, ""},
	{"invoices", 43, 29 * 24 * time.Hour, 4 * time.Hour, 12, func(r *rand.Rand) string {
		return fmt.Sprintf("smtp: 452 4.2.2 mailbox of customer-%d@example.org is full", r.IntN(90000))
	}, "given up after 24 h"},
	{"invoices", 12, 4 * 24 * time.Hour, 2 * 24 * time.Hour, 3, func(r *rand.Rand) string {
		return fmt.Sprintf("exchange rate for %s on 2026-11-%02d is missing", []string{"CHF", "SEK", "PLN"}[r.IntN(3)], 1+r.IntN(19))
	}, ""},
	{"thumbnails", 132, 7 * 24 * time.Hour, 12 * time.Minute, 6, func(r *rand.Rand) string {
		return fmt.Sprintf("exec ./thumbnail.py: exit status 1: PIL.UnidentifiedImageError: cannot identify image file '/tmp/upload-%s'", hexID(r, 8))
	}, ""},
	{"thumbnails", 26, 2 * 24 * time.Hour, 40 * time.Minute, 6, func(r *rand.Rand) string {
		return fmt.Sprintf("put s3://media/thumbs/%s.webp: context deadline exceeded after 30.0%ds", hexID(r, 10), r.IntN(9))
	}, ""},
	{"thumbnails", 5, 15 * 24 * time.Hour, 3 * 24 * time.Hour, 2, func(r *rand.Rand) string {
		return fmt.Sprintf("the process was killed (signal: out of memory) while it handled an image of %d megapixels", 200+r.IntN(400))
	}, "it ended its worker 5 times"},
	{"emails", 34, 5 * 24 * time.Hour, 20 * time.Minute, 8, func(r *rand.Rand) string {
		return fmt.Sprintf("unknown recipient <user%d@mail.example.net>: 550 5.1.1 no such user", r.IntN(9999))
	}, ""},
	{"emails", 7, 28 * 24 * time.Hour, 8 * 24 * time.Hour, 8, func(*rand.Rand) string {
		return "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1841 [running]:\nmain.render(0xc000112000)\n\t/src/mail/render.go:118 +0x2f1\nmain.(*sender).Handle(0xc0000b4000)\n\t/src/mail/sender.go:54 +0x1c8"
	}, ""},
}

func hexID(r *rand.Rand, n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[r.IntN(16)]
	}
	return string(b)
}

// seeded returns the content of a database that Seed and SeedHistory have filled. All shops of a process share the content,
// because its creation takes up to a minute with the race detector.
var seeded = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "reprise-seed-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, path := context.Background(), filepath.Join(dir, "failed.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(MEMORY)&_pragma=synchronous(OFF)")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	clock, now := &Clock{}, time.Now()
	archive, err := store.Open(ctx, db, store.Config{Dialect: store.SQLite, Clock: clock.Now})
	if err != nil {
		return nil, err
	}
	past, err := history.Open(ctx, db, history.Config{Dialect: store.SQLite, Clock: clock.Now})
	if err != nil {
		return nil, err
	}
	if err := Seed(ctx, archive, clock, now); err != nil {
		return nil, err
	}
	if err := SeedHistory(ctx, db, past, archive, clock, now); err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Seed fills an archive with the failures of a shop during a month, and with the actions of its operators. The archive
// must use clock. The result depends only on now.
func Seed(ctx context.Context, a *store.Archive, clock *Clock, now time.Time) error {
	defer clock.Release()
	r := rand.New(rand.NewPCG(1, 2))
	var all []failed.Message
	for _, f := range faults {
		for range f.n {
			span := f.from - f.to
			part := r.Float64()
			ago := f.to + time.Duration(part*part*float64(span)) // recent failures are more frequent
			all = append(all, failure(r, f, now.Add(-ago)))
		}
	}
	all = append(all, hostile(now.Add(-33*time.Minute)))
	slices.SortFunc(all, func(x, y failed.Message) int { return x.LastFailed.Compare(y.LastFailed) })
	for batch := range slices.Chunk(all, 5) {
		clock.Set(batch[len(batch)-1].LastFailed.Add(time.Second))
		if _, err := a.Add(ctx, batch); err != nil {
			return err
		}
	}
	if err := act(ctx, a, clock, now); err != nil {
		return err
	}
	clock.Set(now)
	return seedWaiting(ctx, a, now)
}

// act performs the actions of the operators.
func act(ctx context.Context, a *store.Archive, clock *Clock, now time.Time) error {
	const anna, ben = failed.Actor("anna"), failed.Actor("ben")
	clock.Set(now.Add(-26 * time.Hour))
	if _, err := a.Discard(ctx, failed.Filter{Queue: "emails", Error: "index out of range"}, "sent by hand, ticket 4711", anna); err != nil {
		return err
	}
	// A finished replay with failed publications, and a stopped replay.
	clock.Set(now.Add(-5 * time.Hour))
	if err := replayPart(ctx, a, failed.Plan{Filter: failed.Filter{Queue: "invoices", Error: "exchange rate"}, Rate: 5, Ramp: true}, ben, 0.8, func(r *failed.Replay) error {
		clock.Set(r.Begun.Add(9 * time.Second))
		if err := refuseRest(ctx, a, r); err != nil {
			return err
		}
		return a.EndReplay(ctx, r.ID, failed.ReplayDone, "", ben)
	}); err != nil {
		return err
	}
	clock.Set(now.Add(-2 * time.Hour))
	if err := replayPart(ctx, a, failed.Plan{Filter: failed.Filter{Queue: "thumbnails", Text: "UnidentifiedImageError"}, Rate: 10, Ramp: true, Canary: 2 * time.Minute}, anna, 0.05, func(r *failed.Replay) error {
		clock.Set(r.Begun.Add(141 * time.Second))
		return a.EndReplay(ctx, r.ID, failed.ReplayStopped, "message 17 failed again with the same error", "policy:same")
	}); err != nil {
		return err
	}
	// An edit, and a running replay.
	clock.Set(now.Add(-14 * time.Minute))
	list, _, err := a.List(ctx, failed.Filter{Queue: "orders", Error: "decode order"}, store.Page{Size: 1})
	if err != nil {
		return err
	}
	for _, s := range list {
		m, err := a.Get(ctx, s.ID)
		if err != nil {
			return err
		}
		c := m.Content
		c.Body = []byte(strings.ReplaceAll(string(c.Body), `"quantity":"2"`, `"quantity":2`))
		if err := a.Edit(ctx, s.ID, 0, c, ben); err != nil {
			return err
		}
	}
	clock.Set(now.Add(-40 * time.Second))
	return replayPart(ctx, a, failed.Plan{Filter: failed.Filter{Queue: "orders", Error: "503 Service Unavailable"}, Rate: 20, Ramp: true}, ben, 0.37, func(*failed.Replay) error { return nil })
}

// replayPart begins a replay, records the given part of its messages as sent, and passes the replay to the function then.
func replayPart(ctx context.Context, a *store.Archive, p failed.Plan, who failed.Actor, part float64, then func(*failed.Replay) error) error {
	r, err := a.BeginReplay(ctx, p, who)
	if err != nil {
		return err
	}
	waiting, err := unsent(ctx, a)
	if err != nil {
		return err
	}
	if err := testhook.Sent(ctx, a, int64(r.ID), waiting[:int(part*float64(r.Total)+0.5)]...); err != nil {
		return err
	}
	return then(r)
}

// unsent returns the IDs of the unsent messages of the only running replay, the oldest failure first.
func unsent(ctx context.Context, a *store.Archive) (ids []int64, err error) {
	for m, err := range a.Each(ctx, failed.Filter{States: []failed.State{failed.Replaying}}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, int64(m.ID))
	}
	return ids, nil
}

// refuseRest records that the remaining messages of a replay cannot be published.
func refuseRest(ctx context.Context, a *store.Archive, r *failed.Replay) error {
	waiting, err := unsent(ctx, a)
	if err != nil {
		return err
	}
	for i, id := range waiting {
		why := []string{"queue in which the message failed is unknown (set a destination)", "headers must have at most 131064 bytes, the room in the broker's frames: got 131402"}[i%2]
		if err := testhook.Refused(ctx, a, int64(r.ID), id, why); err != nil {
			return err
		}
	}
	return nil
}

// failure returns a message whose last failure was at the given time.
func failure(r *rand.Rand, f fault, last time.Time) failed.Message {
	m := failed.Message{
		Queue: f.queue, FailedQueue: f.queue + ".failed", Exchange: "shop", RoutingKey: f.queue + ".created",
		Attempts: f.attempts, Reason: f.reason, LastFailed: last,
	}
	wait, at := time.Second, last
	kept := min(f.attempts, 6)
	m.ErrorsDropped = f.attempts - kept
	text := f.error(r)
	for i := range kept {
		attempt := f.attempts - i
		if i == kept-1 {
			attempt = 1
		}
		m.Errors = append(m.Errors, reprise.AttemptError{
			Attempt: attempt, Time: at, Error: text, Host: fmt.Sprintf("worker-%d", 1+r.IntN(3)), Duration: time.Duration(40+r.IntN(30000)) * time.Millisecond,
		})
		at = at.Add(-wait)
		wait *= 3
	}
	slices.Reverse(m.Errors)
	m.Error, m.FirstFailed = text, m.Errors[0].Time
	m.Properties = failed.Properties{
		ContentType: "application/json", MessageID: hexID(r, 8) + "-" + hexID(r, 4) + "-4" + hexID(r, 3) + "-a" + hexID(r, 3) + "-" + hexID(r, 12),
		CorrelationID: "req-" + hexID(r, 10), Type: f.queue + ".created", AppID: "shop", Timestamp: m.FirstFailed.Add(-time.Second).Truncate(time.Second),
		RoutingKey: f.queue + ".failed",
	}
	m.Headers = topology.Table{
		"tenant": []string{"north", "south", "west"}[r.IntN(3)], "schema-version": int32(3), "traceparent": "00-" + hexID(r, 32) + "-" + hexID(r, 16) + "-01",
		topology.HeaderAttempts: int64(f.attempts), topology.HeaderFirstFailed: m.FirstFailed, topology.HeaderQueue: f.queue,
		topology.HeaderExchange: "shop", topology.HeaderRoutingKey: m.RoutingKey,
	}
	m.Body = body(r, f, &m.Properties)
	return m
}

func body(r *rand.Rand, f fault, p *failed.Properties) []byte {
	switch f.queue {
	case "orders":
		quantity := "2"
		if f.attempts == 1 {
			quantity = `"2"`
		}
		return fmt.Appendf(nil, `{"order":%d,"customer":{"id":%d,"email":"customer%d@example.org"},"items":[{"sku":"SKU-%04d","quantity":%s,"price":"%d.90"},{"sku":"SKU-%04d","quantity":1,"price":"4.50"}],"total":"%d.30","currency":"EUR","paid":false}`,
			40000+r.IntN(9000), r.IntN(9999), r.IntN(9999), r.IntN(9999), quantity, 10+r.IntN(80), r.IntN(9999), 20+r.IntN(200))
	case "invoices":
		p.ContentType = "application/xml"
		return fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?><invoice number="2026-%05d"><customer id="%d"><name>Müller &amp; Söhne</name></customer><lines><line quantity="3" price="19.90">Coffee beans, 1 kg</line><line quantity="1" price="4.50">Shipping</line></lines><total currency="EUR">64.20</total></invoice>`,
			r.IntN(99999), r.IntN(9999))
	case "thumbnails":
		p.ContentType = "image/jpeg"
		b := []byte{0xff, 0xd8, 0xff, 0xe0, 0, 16, 'J', 'F', 'I', 'F', 0, 1, 1, 0}
		for range 40 {
			b = binary.LittleEndian.AppendUint64(b, r.Uint64())
		}
		return b
	}
	p.ContentType = "text/plain"
	return fmt.Appendf(nil, "to: user%d@mail.example.net\nsubject: Your order is on its way\n\nHello,\n\nyour parcel left our warehouse today.\n", r.IntN(9999))
}

// hostile returns a message with markup, control characters and other content that a page must escape.
func hostile(last time.Time) failed.Message {
	deep := topology.Table{"end": "here"}
	for range 20 {
		deep = topology.Table{"in": deep}
	}
	return failed.Message{
		Queue: "orders", FailedQueue: "orders.failed", Exchange: "shop", RoutingKey: "orders.created", Attempts: 1, LastFailed: last, FirstFailed: last,
		Error:  "<script>document.body.innerHTML = 'owned'</script>\u202eeno rehto eht \x1b[31m",
		Errors: []reprise.AttemptError{{Attempt: 1, Time: last, Error: "<script>document.body.innerHTML = 'owned'</script>\u202eeno rehto eht \x1b[31m"}},
		Content: failed.Content{
			Body:       []byte("<img src=x onerror=alert(1)>\x00\x01\xff\xfe </textarea><script>alert(2)</script>"),
			Headers:    topology.Table{"<b>bold</b>": "\"><svg onload=alert(3)>", "deep": deep, "bytes": []byte{0, 159, 146, 150}},
			Properties: failed.Properties{ContentType: "text/html", MessageID: "javascript:alert(4)"},
		},
	}
}

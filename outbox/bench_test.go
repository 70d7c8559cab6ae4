package outbox_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/outbox"
)

// benchmarkDatabases runs a benchmark with databases on disk. The servers are those of the tests, usually without fsync.
func benchmarkDatabases(b *testing.B, run func(b *testing.B, db database)) {
	b.Run("sqlite", func(b *testing.B) {
		run(b, open(b, outbox.SQLite, "sqlite", "file:"+filepath.Join(b.TempDir(), "bench.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"))
	})
	for _, name := range []string{"postgres", "mariadb"} {
		b.Run(name, func(b *testing.B) { run(b, databases[name](b)) })
	}
}

// BenchmarkSchedule measures the insertion of messages of 350 bytes.
func BenchmarkSchedule(b *testing.B) {
	for _, size := range []int{1, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			benchmarkDatabases(b, func(b *testing.B, db database) {
				box := db.box(b, nil)
				for b.Loop() {
					schedule(b, box, payloads(size, 0)...)
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "messages/s")
			})
		})
	}
}

func payloads(n int, in time.Duration) []*outbox.Message {
	all := make([]*outbox.Message, n)
	for i := range all {
		all[i] = &outbox.Message{Message: reprise.Message{RoutingKey: "orders", Body: make([]byte, 350)}, In: in}
	}
	return all
}

// BenchmarkDrain measures a relay with 50,000 due messages, without a broker.
func BenchmarkDrain(b *testing.B) {
	const total = 50_000
	benchmarkDatabases(b, func(b *testing.B, db database) {
		box := db.box(b, nil)
		for b.Loop() {
			b.StopTimer()
			for range total / 1000 {
				schedule(b, box, payloads(1000, 0)...)
			}
			r := relay(b, box, &recorder{})
			b.StartTimer()
			step(b, r)
			b.StopTimer()
			if _, err := outbox.Renew(b.Context(), r); err != nil {
				b.Fatal(err)
			}
			outbox.Release(b.Context(), r)
			b.StartTimer()
		}
		b.ReportMetric(float64(b.N*total)/b.Elapsed().Seconds(), "messages/s")
	})
}

// BenchmarkLateness measures the lateness of 20,000 messages, of which 5,000 are due in each second, and of a million that are
// due in one minute, without a broker.
func BenchmarkLateness(b *testing.B) {
	for _, load := range []struct {
		name        string
		total, rate int
	}{{"5000-per-second", 20_000, 5000}, {"million-in-a-minute", 1_000_000, 1_000_000 / 60}} {
		b.Run(load.name, func(b *testing.B) {
			benchmarkDatabases(b, func(b *testing.B, db database) {
				box := db.box(b, nil)
				for b.Loop() {
					measureLateness(b, box, load.total, load.rate)
				}
			})
		})
	}
}

// measureLateness measures the lateness of messages that are due at a rate.
func measureLateness(b *testing.B, box *outbox.Box, total, rate int) {
	b.Helper()
	start := time.Now().Add(time.Duration(10+total/2500) * time.Second) // time to insert them
	due := map[string]time.Time{}
	for range total / 500 {
		batch := payloads(500, 0)
		for _, m := range batch {
			m.At = start.Add(time.Duration(len(due)) * time.Second / time.Duration(rate))
			m.MessageID = fmt.Sprint(len(due))
			due[m.MessageID] = m.At
		}
		schedule(b, box, batch...)
	}
	if behind := time.Since(start); behind > 0 {
		b.Fatalf("the messages were inserted %v too late", behind)
	}
	var late []time.Duration
	done := make(chan struct{})
	var mu sync.Mutex
	to := publisher(func(messages []*reprise.Message) error {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			late = append(late, time.Since(due[m.MessageID]))
		}
		if len(late) == total {
			close(done)
		}
		return nil
	})
	ctx, stop := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	r := relay(b, box, to)
	wg.Go(func() { _ = r.Run(ctx) })
	<-done
	stop()
	wg.Wait()
	slices.Sort(late)
	b.ReportMetric(float64(late[total/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(late[total*99/100].Milliseconds()), "p99-ms")
	b.ReportMetric(float64(late[total-1].Milliseconds()), "max-ms")
}

var waitingRows = flag.Int("outbox.waiting", 100_000, "number of rows that wait in BenchmarkWaiting")

// BenchmarkWaiting measures the lateness of 5,000 messages per second, Cancel, and the start of a relay while many rows of 350 bytes
// wait, all of which are due in a year.
func BenchmarkWaiting(b *testing.B) {
	benchmarkDatabases(b, func(b *testing.B, db database) {
		box := db.box(b, nil)
		for range 10 {
			schedule(b, box, payloads(1000, 365*24*time.Hour)...)
		}
		for n := 10_000; n < *waitingRows; n *= 2 {
			const columns = "due, retry_at, okey, uniq, message_id, exchange, routing_key, properties, headers, body, attempts, error"
			_, err := db.Exec("INSERT INTO reprise_outbox_messages (" + columns + ") SELECT due + 1" + columns[3:] + " FROM reprise_outbox_messages LIMIT " + fmt.Sprint(min(n, *waitingRows-n)))
			if err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			measureLateness(b, box, 20_000, 5000)
			m := delayed("mine", time.Hour)
			schedule(b, box, m)
			began := time.Now()
			cancel(b, box, outbox.Filter{MessageID: "mine"}, outbox.Result{Done: 1})
			b.ReportMetric(float64(time.Since(began).Milliseconds()), "cancel-ms")
			schedule(b, box, message("first"))
			to := &recorder{}
			began = time.Now()
			step(b, relay(b, box, to))
			to.want(b, "first")
			b.ReportMetric(float64(time.Since(began).Milliseconds()), "start-ms")
		}
	})
}

// BenchmarkIntake measures an Intake with messages of 350 bytes, which wait in the queue of an embedded broker.
func BenchmarkIntake(b *testing.B) {
	benchmarkDatabases(b, func(b *testing.B, db database) {
		box := db.box(b, nil)
		client, err := reprise.Dial(b.Context(), testkit.Embedded(b).URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close(context.Background())
		in, err := outbox.NewIntake(box, client, outbox.IntakeConfig{})
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		go func() { _ = in.Run(ctx) }()
		testkit.Eventually(b, timeout, func() error { // until the exchange and its binding exist
			return client.Publish(ctx, &reprise.Message{Exchange: outbox.DefaultExchange, Headers: map[string]any{"x-delay": "invalid"}})
		})
		const total = 2000
		for b.Loop() {
			for range total / 500 {
				var batch []*reprise.Message
				for _, m := range payloads(500, 0) {
					m.Exchange, m.Headers = outbox.DefaultExchange, map[string]any{"x-delay": int32(3_600_000)}
					batch = append(batch, &m.Message)
				}
				if err := client.PublishBatch(ctx, batch); err != nil {
					b.Fatal(err)
				}
			}
			testkit.Eventually(b, timeout, func() error {
				var n int
				err := db.QueryRow("SELECT count(*) FROM reprise_outbox_messages").Scan(&n)
				if err == nil && n%total != 0 {
					err = fmt.Errorf("got %d rows", n)
				}
				return err
			})
		}
		b.ReportMetric(float64(b.N*total)/b.Elapsed().Seconds(), "messages/s")
	})
}

// BenchmarkHeldSnapshot measures a relay while another transaction keeps the snapshot that it took before all messages.
func BenchmarkHeldSnapshot(b *testing.B) {
	const rounds, total = 8, 50_000
	for _, name := range []string{"postgres", "mariadb"} {
		b.Run(name, func(b *testing.B) {
			db := databases[name](b)
			box := db.box(b, nil)
			held, err := db.BeginTx(b.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			if err != nil {
				b.Fatal(err)
			}
			var n int
			if err := held.QueryRow("SELECT count(*) FROM reprise_outbox_messages").Scan(&n); err != nil {
				b.Fatal(err)
			}
			r := relay(b, box, &recorder{})
			for b.Loop() {
				for round := range rounds {
					for range total / 1000 {
						schedule(b, box, payloads(1000, 0)...)
					}
					began := time.Now()
					step(b, r)
					rate := total / time.Since(began).Seconds()
					began = time.Now()
					step(b, r)
					b.ReportMetric(rate, fmt.Sprintf("messages/s-%d", round))
					b.ReportMetric(float64(time.Since(began).Microseconds()), fmt.Sprintf("idle-µs-%d", round))
				}
			}
			_ = held.Rollback()
		})
	}
}

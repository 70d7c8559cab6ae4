package browsertest

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
)

// traffic describes the messages of a queue.
type traffic struct {
	queue   string
	rate    float64 // messages per minute
	failing float64 // share of failed messages
	took    time.Duration
}

var allTraffic = []traffic{
	{"orders", 220, 0.002, 40 * time.Millisecond},
	{"invoices", 60, 0.004, 300 * time.Millisecond},
	{"thumbnails", 90, 0.02, 1200 * time.Millisecond},
	{"emails", 25, 0.001, 9 * time.Millisecond},
}

// SeedHistory records the activity of a shop in the last six days, with more traffic by day, and unrecorded gaps of
// three hours and six minutes. An outage of orders, from 34 to 13 minutes ago, begins two minutes after a mark. h must
// use clock.
func SeedHistory(ctx context.Context, db *sql.DB, h *history.History, a *store.Archive, clock *Clock, now time.Time) error {
	defer clock.Release()
	outage := func(t time.Time) bool {
		ago := now.Sub(t)
		return ago <= 34*time.Minute && ago > 13*time.Minute
	}
	workers := make([]protocol.WorkerStatus, len(allTraffic))
	begin := now.Add(-8 * 24 * time.Hour)
	for i, t := range allTraffic {
		workers[i] = protocol.WorkerStatus{ID: "seed-" + t.queue, Queue: t.queue, Started: begin, Sent: begin, State: protocol.WorkerConsuming}
	}
	rests := make([]float64, 2*len(allTraffic))
	step := func(from time.Time, d time.Duration) time.Duration {
		for i, t := range allTraffic {
			day := 1 + 0.6*math.Sin(2*math.Pi*(float64(from.Unix()%86400)/86400-0.3))
			wave := 1 + 0.15*math.Sin(float64(from.Unix()/60)*1.7+float64(i))*math.Cos(float64(from.Unix()/60)*0.37)
			n, failing, took := t.rate*day*wave*d.Minutes(), t.failing, t.took
			if t.queue == "orders" && outage(from) {
				n, failing, took = n/3, 0.8, 6*took
			}
			rests[2*i] += n * (1 - failing)
			rests[2*i+1] += n * failing
			s := &workers[i]
			succeeded, failures := uint64(rests[2*i]), uint64(rests[2*i+1])
			rests[2*i], rests[2*i+1] = rests[2*i]-float64(succeeded), rests[2*i+1]-float64(failures)
			s.Counts.Succeeded += succeeded
			s.Counts.Failed += failures
			s.Counts.Retried += failures
			bucket := protocol.TookBucket(took)
			slow := (succeeded + failures) / 12
			s.Took.Buckets[bucket] += succeeded + failures - slow
			s.Took.Buckets[bucket+3] += slow * 3 / 4
			s.Took.Buckets[bucket+4] += slow - slow*3/4
		}
		return d
	}
	for at := begin; at.Before(now); {
		d := time.Hour
		switch ago := now.Sub(at); {
		case ago <= 62*time.Minute:
			d = min(30*time.Second, ago)
		case ago <= 26*time.Hour:
			d = 5 * time.Minute
		}
		at = at.Add(step(at, d))
		clock.Set(at)
		for i := range workers {
			workers[i].Sent = at
			h.Observe(workers[i])
		}
		if err := h.Record(ctx, history.Sources{Archive: a}); err != nil {
			return err
		}
	}
	clock.Set(now)
	for _, m := range []history.Mark{
		{Text: "v2.3", At: now.Add(-51 * time.Hour)},
		{Text: "v2.4", At: now.Add(-36 * time.Minute)},
		{Text: "v2.4 rolled back", At: now.Add(-14 * time.Minute), Queue: "orders"},
	} {
		m.By = "anna"
		if _, err := h.AddMark(ctx, m); err != nil {
			return err
		}
	}
	return recorded(ctx, db, now)
}

// recorded marks the minutes of six days as recorded, except a gap of three hours, and a gap of six minutes in the last
// hour.
func recorded(ctx context.Context, db *sql.DB, now time.Time) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for at := now.Truncate(time.Hour).Add(-7 * 24 * time.Hour); at.Before(now); at = at.Add(time.Minute) {
		ago := now.Sub(at)
		if ago > 6*24*time.Hour || ago > 14*time.Hour && ago < 17*time.Hour || ago < 52*time.Minute && ago > 46*time.Minute {
			continue
		}
		for _, r := range history.Ranges() {
			if _, err := tx.ExecContext(ctx, `INSERT INTO `+history.DefaultPrefix+`recorded (span, start, minutes) VALUES (?, ?, 1) ON CONFLICT (span, start) DO UPDATE SET minutes = minutes + 1`,
				int64(r.Step/time.Second), at.Truncate(r.Step).Unix()); err != nil {
				return err
			}
		}
	}
	// While SeedHistory filled the history, h.Record marked these gaps as recorded.
	for _, gap := range [][2]time.Duration{{8 * 24 * time.Hour, 6 * 24 * time.Hour}, {17 * time.Hour, 14 * time.Hour}, {52 * time.Minute, 46 * time.Minute}} {
		if _, err := tx.ExecContext(ctx, `DELETE FROM `+history.DefaultPrefix+`recorded WHERE start > ? AND start + span < ?`, now.Add(-gap[0]).Unix(), now.Add(-gap[1]).Unix()); err != nil {
			return err
		}
	}
	return tx.Commit()
}

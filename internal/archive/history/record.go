package history

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

const (
	// maxBetween is the maximum time between two transactions. A longer time does not count as recorded.
	maxBetween = 3 * Every

	// maxUnrecorded is the maximum age of a status that is recorded. It is shorter than keepStopped, because a status
	// whose worker is no longer in the database would count all events of the worker again.
	maxUnrecorded = time.Hour
	keepStopped   = 2 * time.Hour

	// pruneEvery is the interval between two removals of old rows.
	pruneEvery = 10 * time.Minute

	// arrivals is the maximum number of archived messages that are read at a time.
	arrivals = 5_000
)

// recorder is the state of Run in one process.
type recorder struct {
	until  time.Time       // end of the recorded time; zero if nothing is recorded
	pruned time.Time       // time of the last removal of old rows
	queues map[string]bool // queues that have rows
}

// key identifies the row of a queue and an interval.
type key struct {
	queue string
	step  time.Duration
	start int64
}

// Record writes the observed statuses, and the messages that have arrived in the archive. Run calls it every 15 s. It
// must not be called while Run is running.
func (h *History) Record(ctx context.Context, from Sources) error {
	now := h.now()
	until := now
	if from.Listening != nil && from.Listening(ctx) != nil {
		until = time.Time{}
	}
	statuses := h.unrecorded(now)
	if err := h.record(ctx, now, until, statuses); err != nil {
		return err
	}
	h.recorded(statuses)
	h.recorder.until = until
	for more := from.Archive != nil; more; {
		var err error
		if more, err = h.recordArrivals(ctx, now, from.Archive); err != nil {
			return err
		}
	}
	return nil
}

// unrecorded returns the statuses that are not recorded yet. It drops statuses older than maxUnrecorded.
func (h *History) unrecorded(now time.Time) map[string]observation {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.observed, func(_ string, s observation) bool { return now.Sub(s.at) > maxUnrecorded })
	return maps.Clone(h.observed)
}

// recorded removes statuses that have been written to the database.
func (h *History) recorded(statuses map[string]observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.observed, func(id string, s observation) bool { return s == statuses[id] })
}

// record writes statuses of workers in one transaction. Unless until is zero, it also marks the time since the previous
// call, up to until, as recorded.
func (h *History) record(ctx context.Context, now, until time.Time, statuses map[string]observation) error {
	r := &h.recorder
	prune := now.Sub(r.pruned) >= pruneEvery || now.Before(r.pruned)
	if prune {
		if err := h.findQueues(ctx); err != nil {
			return err
		}
	}
	err := h.write(ctx, func(tx *sqlkit.Tx) error {
		known := map[string]observation{}
		if len(statuses) > 0 {
			var id []byte
			var s observation
			for err := range tx.Rows(`SELECT id, heard, totals FROM {worker}`).Scan(&id, sqlkit.Time(&s.at), stored(&s.totals)) {
				if err != nil {
					return err
				}
				known[string(id)] = s
			}
		}
		sums := map[key]Totals{}
		var workers [][]any
		for id, s := range statuses {
			before, found := known[id]
			if !found {
				before.at = s.began
			}
			added, later := s.totals.since(before.totals)
			if !later {
				continue // another process has recorded a later status
			}
			s.at = latest(s.at, before.at) // the clocks of processes may differ
			h.spread(sums, s.queue, now, before.at, s.at, added)
			stopped := 0
			if s.stopped {
				stopped = 1
			}
			workers = append(workers, []any{[]byte(id), sqlkit.Millis(s.at), stopped, s.totals.encode()})
		}
		if err := tx.ExecEach(`INSERT INTO {worker} (id, heard, stopped, totals) VALUES ($1, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET heard = excluded.heard, stopped = excluded.stopped, totals = excluded.totals`, workers); err != nil {
			return err
		}
		if err := h.add(tx, sums); err != nil {
			return err
		}
		if !until.IsZero() {
			from := r.until
			if from.IsZero() || until.Sub(from) > maxBetween || from.After(until) {
				from = until
			}
			if err := recordMinutes(tx, from, until); err != nil {
				return err
			}
		}
		if prune {
			return h.prune(tx, now)
		}
		return nil
	})
	if err == nil && prune {
		r.pruned = now
	}
	return err
}

// spread distributes events evenly over the intervals between two times. It omits intervals that are too old.
func (h *History) spread(sums map[key]Totals, queue string, now, from, to time.Time, added Totals) {
	if added == (Totals{}) || !h.recorder.admit(queue) {
		return
	}
	if from.After(to) {
		from = to
	}
	whole := to.Sub(from)
	for _, r := range Ranges() {
		oldest := now.Add(-kept(r.Step)).Truncate(r.Step)
		var done Totals
		if from.Before(oldest) {
			done = added.before(oldest.Sub(from), whole)
		}
		for start := latest(from.Truncate(r.Step), oldest); !start.After(to); start = start.Add(r.Step) {
			sum := added
			if end := start.Add(r.Step); end.Before(to) {
				sum = added.before(end.Sub(from), whole)
			}
			share, _ := sum.since(done)
			done = sum
			if share != (Totals{}) {
				k := key{queue, r.Step, start.Unix()}
				sums[k] = sums[k].Add(share)
			}
		}
	}
}

func latest(x, y time.Time) time.Time {
	if x.Before(y) {
		return y
	}
	return x
}

// admit reports whether a queue has a history. It adds a new queue, unless MaxQueues is reached.
func (r *recorder) admit(queue string) bool {
	if !r.queues[queue] && len(r.queues) < MaxQueues {
		r.queues[queue] = true
	}
	return r.queues[queue]
}

// findQueues reads the queues that have rows.
func (h *History) findQueues(ctx context.Context) error {
	found := map[string]bool{}
	var queue []byte
	for err := range h.db.Rows(ctx, `SELECT DISTINCT queue FROM {interval} WHERE span = $1`, seconds(Week.Step)).Scan(&queue) {
		if err != nil {
			return err
		}
		found[string(queue)] = true
	}
	h.recorder.queues = found
	return nil
}

// add adds sums to the stored rows.
func (h *History) add(tx *sqlkit.Tx, sums map[key]Totals) error {
	keys := slices.SortedFunc(maps.Keys(sums), func(x, y key) int {
		return cmp.Or(cmp.Compare(x.queue, y.queue), cmp.Compare(x.step, y.step), cmp.Compare(x.start, y.start))
	})
	rows := make([][]any, 0, len(keys))
	for len(keys) > 0 {
		// Keys with the same queue and step are adjacent.
		n := 1
		for n < len(keys) && keys[n].queue == keys[0].queue && keys[n].step == keys[0].step {
			n++
		}
		var start int64
		var totals Totals
		for err := range tx.Rows(`SELECT start, totals FROM {interval} WHERE span = $1 AND queue = $2 AND start >= $3 AND start <= $4`,
			seconds(keys[0].step), []byte(keys[0].queue), keys[0].start, keys[n-1].start).Scan(&start, stored(&totals)) {
			if err != nil {
				return err
			}
			k := key{keys[0].queue, keys[0].step, start}
			if sum, found := sums[k]; found {
				sums[k] = sum.Add(totals)
			}
		}
		for _, k := range keys[:n] {
			rows = append(rows, []any{seconds(k.step), []byte(k.queue), k.start, sums[k].encode()})
		}
		keys = keys[n:]
	}
	return tx.ExecEach(`INSERT INTO {interval} (span, queue, start, totals) VALUES ($1, $2, $3, $4)
		ON CONFLICT (span, queue, start) DO UPDATE SET totals = excluded.totals`, rows)
}

// recordMinutes marks the minutes between two times as recorded. A minute counts once, even if several processes record
// it.
func recordMinutes(tx *sqlkit.Tx, from, until time.Time) error {
	for at := from.Truncate(time.Minute); !at.After(until); at = at.Add(time.Minute) {
		added, err := tx.Exec(`INSERT INTO {recorded} (span, start, minutes) VALUES ($1, $2, 1) ON CONFLICT (span, start) DO NOTHING`, seconds(Hour.Step), at.Unix())
		if err != nil {
			return err
		}
		if added == 0 {
			continue
		}
		for _, r := range []Range{Day, Week} {
			if _, err := tx.Exec(`INSERT INTO {recorded} (span, start, minutes) VALUES ($1, $2, 1) ON CONFLICT (span, start) DO UPDATE SET minutes = {recorded}.minutes + 1`,
				seconds(r.Step), at.Truncate(r.Step).Unix()); err != nil {
				return err
			}
		}
	}
	return nil
}

// prune removes old rows, and workers beyond maxWorkers.
func (h *History) prune(tx *sqlkit.Tx, now time.Time) error {
	for _, r := range Ranges() {
		oldest := now.Add(-kept(r.Step)).Truncate(r.Step).Unix()
		for _, table := range []string{"interval", "recorded"} {
			if _, err := tx.Exec(`DELETE FROM {`+table+`} WHERE span = $1 AND start < $2`, seconds(r.Step), oldest); err != nil {
				return err
			}
		}
	}
	_, err := tx.Exec(`DELETE FROM {worker} WHERE heard < $1 OR stopped = 1 AND heard < $2
		OR heard < (SELECT heard FROM {worker} ORDER BY heard DESC LIMIT 1 OFFSET $3)`,
		sqlkit.Millis(now.Add(-keepLongest)), sqlkit.Millis(now.Add(-keepStopped)), maxWorkers)
	return err
}

// recordArrivals counts archived messages that were not counted yet. It reports whether there may be more.
func (h *History) recordArrivals(ctx context.Context, now time.Time, from Archive) (more bool, err error) {
	var last int64
	if err := h.db.Row(ctx, `SELECT CAST(value AS BIGINT) FROM {about} WHERE name = $1`, aboutArrived).Scan(&last); err != nil {
		return false, err
	}
	arrived, err := from.Failures(ctx, failed.ID(last), arrivals)
	if err != nil || len(arrived) == 0 {
		return false, err
	}
	sums := map[key]Totals{}
	for _, a := range arrived {
		at := a.Time
		if at.After(now) {
			at = now
		}
		h.spread(sums, a.Queue, now, at, at, Totals{Arrived: 1})
	}
	return len(arrived) == arrivals, h.write(ctx, func(tx *sqlkit.Tx) error {
		if at, err := about(tx, aboutArrived); err != nil || at != last {
			return err // another process has counted them
		}
		if err := h.add(tx, sums); err != nil {
			return err
		}
		return setAbout(tx, aboutArrived, int64(arrived[len(arrived)-1].ID))
	})
}

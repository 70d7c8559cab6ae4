package store

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// codes maps each state to its value in the database, which is also the index of the state in counted.
var codes = map[failed.State]int{failed.Failed: 0, failed.Replaying: 1, failed.Replayed: 2, failed.Discarded: 3}

// counted lists the columns with the numbers of messages, indexed by the code of the state.
var counted = [...]string{"failed", "replaying", "replayed", "discarded"}

func (c Counts) byCode() [4]int64 { return [4]int64{c.Failed, c.Replaying, c.Replayed, c.Discarded} }

func countsOf(n [4]int64) Counts {
	return Counts{Failed: n[codes[failed.Failed]], Replaying: n[codes[failed.Replaying]], Replayed: n[codes[failed.Replayed]], Discarded: n[codes[failed.Discarded]]}
}

// countChanges collects changes to the message counts of groups and queues.
type countChanges struct {
	groups map[failed.GroupID]*[4]int64
	queues map[int64]*[4]int64
}

func (c *countChanges) add(group failed.GroupID, queue int64, code int, n int64) {
	if c.groups == nil {
		c.groups, c.queues = make(map[failed.GroupID]*[4]int64), make(map[int64]*[4]int64)
	}
	if c.groups[group] == nil {
		c.groups[group] = new([4]int64)
	}
	if c.queues[queue] == nil {
		c.queues[queue] = new([4]int64)
	}
	c.groups[group][code] += n
	c.queues[queue][code] += n
}

// count adds the changes to the counts in the database.
func (t *tx) count(c countChanges) error {
	const set = ` SET failed = failed + $2, replaying = replaying + $3, replayed = replayed + $4, discarded = discarded + $5 WHERE id = $1`
	for id, n := range c.groups {
		if _, err := t.Exec(`UPDATE {group}`+set, int64(id), n[0], n[1], n[2], n[3]); err != nil {
			return err
		}
	}
	for id, n := range c.queues {
		if _, err := t.Exec(`UPDATE {queue}`+set, id, n[0], n[1], n[2], n[3]); err != nil {
			return err
		}
	}
	return nil
}

// failures summarizes the messages that one transaction adds to a group.
type failures struct {
	text, example string
	queue         int64
	name          string // of the queue
	first, last   time.Time
	starts        map[bucket]int64
}

type bucket struct{ span, start int64 } // seconds

const (
	hour = 3600
	day  = 24 * hour
)

// bucketsOf returns the buckets of the trend that count a failure.
func bucketsOf(failure time.Time) [2]bucket {
	s := failure.Unix()
	start := func(span int64) bucket { return bucket{span, s - (s%span+span)%span} }
	return [2]bucket{start(hour), start(day)}
}

// groupSum returns the hash that identifies a group.
func groupSum(queue, text string) [sha256.Size]byte {
	return sha256.Sum256([]byte(queue + "\x00" + text))
}

// group finds or creates the work queues and groups of the messages, and updates their counts.
func (t *tx) group(added []*Arrival) error {
	queues := make(map[string]int64)
	groups := make(map[[sha256.Size]byte]*failures)
	of := make([][sha256.Size]byte, len(added))
	for i, e := range added {
		m := &e.m
		var err error
		if e.queue = queues[m.Queue]; e.queue == 0 {
			if e.queue, err = t.queue(m.Queue); err != nil {
				return err
			}
			queues[m.Queue] = e.queue
		}
		of[i] = groupSum(m.Queue, e.text)
		g := groups[of[i]]
		if g == nil {
			g = &failures{text: e.text, name: m.Queue, queue: e.queue, starts: make(map[bucket]int64)}
			groups[of[i]] = g
		}
		g.example = m.Error
		g.first, g.last = earliest(g.first, m.FirstFailed), latest(g.last, m.LastFailed)
		for _, b := range bucketsOf(m.LastFailed) {
			g.starts[b]++
		}
	}
	ids := make(map[[sha256.Size]byte]failed.GroupID)
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b [sha256.Size]byte) int { return slices.Compare(a[:], b[:]) })
	for _, key := range keys {
		g := groups[key]
		target, text, err := t.mergedInto(g.name, g.text)
		if err != nil {
			return err
		}
		g.text = text
		id, err := t.failed(target, g)
		if err != nil {
			return err
		}
		ids[key] = id
	}
	var c countChanges
	for i, e := range added {
		e.m.Group = ids[of[i]]
		c.add(e.m.Group, e.queue, codes[e.m.State], 1)
	}
	return t.count(c)
}

// queue returns the ID of a work queue. It inserts the row if it is missing.
func (t *tx) queue(name string) (id int64, err error) {
	err = t.Row(`SELECT id FROM {queue} WHERE name = $1`, []byte(name)).Scan(&id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	if id, err = t.next("queue", 1); err != nil {
		return 0, err
	}
	_, err = t.Exec(`INSERT INTO {queue} (id, name) VALUES ($1, $2)`, id, []byte(name))
	return id, err
}

// failed adds failures to the group with the given digest. It creates the group if it is missing.
func (t *tx) failed(digest []byte, g *failures) (id failed.GroupID, err error) {
	err = t.Row(`UPDATE {group} SET example = $2,
			first = CASE WHEN first < $3 THEN first ELSE $3 END,
			latest = CASE WHEN latest > $4 THEN latest ELSE $4 END
		WHERE digest = $1 RETURNING id`, digest, []byte(g.example), sqlkit.Millis(g.first), sqlkit.Millis(g.last)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		var n int64
		if n, err = t.next("group", 1); err != nil {
			return 0, err
		}
		id = failed.GroupID(n)
		_, err = t.Exec(`INSERT INTO {group} (id, queue, digest, text, example, first, latest) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			n, g.queue, digest, []byte(g.text), []byte(g.example), sqlkit.Millis(g.first), sqlkit.Millis(g.last))
	}
	if err != nil {
		return 0, err
	}
	buckets := slices.SortedFunc(maps.Keys(g.starts), func(a, b bucket) int {
		return cmp.Or(cmp.Compare(a.span, b.span), cmp.Compare(a.start, b.start))
	})
	for _, b := range buckets {
		if _, err := t.Exec(`INSERT INTO {trend} (grp, span, start, n) VALUES ($1, $2, $3, $4)
			ON CONFLICT (grp, span, start) DO UPDATE SET n = {trend}.n + excluded.n`, int64(id), b.span, b.start, g.starts[b]); err != nil {
			return 0, err
		}
	}
	return id, nil
}

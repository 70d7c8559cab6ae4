package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
)

// No page scans a complete table or index that grows with the messages, sorts more than maxSorted rows, or has a query that
// PostgreSQL compiles. The test checks the query plans of both databases, in PostgreSQL after ANALYZE.
func TestPagesUseIndexes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		fillForPlans(t, db, a)
		asked := new(recorder)
		recorded := sql.OpenDB(recordingConnector{db.Driver(), db.source, asked})
		t.Cleanup(func() { recorded.Close() })
		a = database{recorded, db.dialect, db.made, db.source}.open(t, prefix(a.Config().Prefix))
		for name, ask := range pagesForPlans(a) {
			asked.take()
			check(t, ask(t.Context()))
			all := asked.take()
			if len(all) == 0 {
				t.Errorf("%s: got no queries", name)
			}
			var plans strings.Builder
			for _, q := range all {
				plan, faults := db.explain(t, q, a.Config().Prefix)
				if plans.WriteString(plan); len(faults) > 0 {
					t.Errorf("%s: %s:\n%s\n%s", name, strings.Join(faults, ", "), q.text, plan)
				}
			}
			if index := plannedIndexes[name]; !strings.Contains(plans.String(), index) {
				t.Errorf("%s: plan does not use index %s:\n%s", name, index, plans.String())
			}
		}
	})
}

// If the filter of an exact count or an act contains a replay or words, the query reads the items of the replay or
// the matches of the words first. Without statistics, SQLite would read all messages in the state of the act.
func TestActsReadReplaysAndWordsFirst(t *testing.T) {
	db := openSQLite(t)
	a := db.archive(t)
	fillForPlans(t, db, a)
	asked := new(recorder)
	recorded := sql.OpenDB(recordingConnector{db.Driver(), db.source, asked})
	t.Cleanup(func() { recorded.Close() })
	a = database{recorded, db.dialect, db.made, db.source}.open(t, prefix(a.Config().Prefix))
	for _, f := range []failed.Filter{
		{SentBy: 1},
		{SentBy: 1, Outcome: failed.OutcomePending},
		{RefusedBy: 1},
		{RefusedBy: 1, Queue: "q3"},
		{Replay: 1},
		{IDs: []failed.ID{700, 800}, Queue: "q3"},
		{Text: "k7"},
		{Text: "k7", Queue: "q3"},
		{Text: "k7", Group: 7},
		{Headers: map[string]string{"tenant": "a"}},
		{Error: "it failed after"},
	} {
		asked.take()
		value(a.CountState(t.Context(), f, failed.Failed))(t)
		value(replay.Destinations(t.Context(), a, failed.Plan{Filter: f}, replay.Routing{}))(t)
		f.AtMost = 1
		if _, err := a.Discard(t.Context(), f, "tested", "me"); err != nil && !errors.Is(err, failed.ErrState) {
			t.Error(err)
		}
		for _, q := range asked.take() {
			plan, faults := db.explain(t, q, a.Config().Prefix)
			if len(faults) > 0 || alongStates.MatchString(plan) {
				t.Errorf("%s: %s\n%s", f, q.text, plan)
			}
		}
	}
}

// alongStates matches a plan that reads an index of {message} that begins with the state.
var alongStates = regexp.MustCompile(`_message_(state|queue|group) `)

// plannedIndexes lists the expected index of each page. With another index, a page might scan all messages to find only
// a few.
var plannedIndexes = map[string]string{
	"queues": "_message_queue",
	"list queue q3, error contains “nothing”": "_message_queue",
	"list in state replayed or discarded":     "_message_state",
	"list queue q3":                           "_message_queue",
	"list queue q3, attempts from 10":         "_message_queue",
	"list in state failed, group 7":           "_message_group",
	"list came back from replay 1":            "_message_back",
	"list sent by replay 1":                   "_item_outcome",
	"list could not be sent by replay 1":      "_item_refused",
	"preview":                                 "_message_group",
	"running":                                 "_replay_ended",
	"settled":                                 "_replay_ended",
}

// plannedFor is the number of messages in the archive, several times as many as a page reads.
const plannedFor = 50_000

// fillForPlans fills an archive quickly, and updates the statistics of the planner.
func fillForPlans(t *testing.T, db database, a *store.Archive) {
	var arrivals []failed.Arrived
	for i := range 600 {
		arrivals = append(arrivals, failed.Arrived{Message: failed.Message{
			FailedQueue: fmt.Sprintf("q%d.failed", i%12), Error: "no such thing: " + strings.Repeat("x", i%50+1), LastFailed: time.Unix(1_600_000_000, 0),
		}})
	}
	value(a.Ingest(t.Context(), arrivals))(t)
	value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{Queue: "q1"}}, "me"))(t)

	numbers, words, key := db.numbers(plannedFor), `array_to_tsvector(string_to_array(%s, ' '))`, "pos"
	if db.dialect == store.SQLite {
		words, key = `%s`, "rowid"
	}
	asBytes := func(text string) string { return fmt.Sprintf(`CAST(%s AS %s)`, text, db.bytes()) }
	// The position, the ID, and the state after replays.
	const pos, id, state = `((CAST(1700000000 AS BIGINT) + g) << 31) | (g + 600)`, `g + 600`, `CASE WHEN g % 100 = 0 THEN 3 WHEN g % 50 = 0 THEN 2 ELSE 0 END`
	for _, statement := range []string{
		`INSERT INTO {message} (pos, id, grp, queue, state, attempts, first_failed, last_failed, archived, failed_queue, exchange, routing_key, message_id, reason, error, size, replay, back, back_of)
			SELECT ` + pos + `, ` + id + `, 1 + g * 7 % 600, 1 + g % 12, ` + state + `, 1 + g % 10, g, (CAST(1700000000 AS BIGINT) + g) * 1000, g, ` + asBytes(`'q' || g % 12 || '.failed'`) + `, ` + asBytes(`'orders'`) + `, ` +
			asBytes(`'placed'`) + `, ` + asBytes(`'id-' || g`) + `, ` + asBytes(`'attempts made'`) + `, ` + asBytes(`'order ' || g || ': it failed after a while'`) + `, 100, 0, CASE WHEN g % 1000 = 0 THEN 1 ELSE 0 END, 0
			FROM ` + numbers,
		`INSERT INTO {content} (message, headers, properties, dropped, body) SELECT ` + id + `, '{}', '{}', 0, ` + asBytes(`'order ' || g`) + ` FROM ` + numbers,
		`INSERT INTO {revision} (message, number, at, actor, headers, properties, body) SELECT ` + id + `, 1, g, ` + asBytes(`'me'`) + `, '{}', '{}', ` + asBytes(`'order'`) + ` FROM ` + numbers,
		`INSERT INTO {search} (` + key + `, words) SELECT ` + pos + `, ` + fmt.Sprintf(words, `'order failed ' || g || ' k' || g % 100 || CASE WHEN g % 3 = 0 THEN ' third' WHEN g % 3 = 1 THEN ' other' ELSE '' END`) + ` FROM ` + numbers,
		`INSERT INTO {item} (replay, message, pos, sent) SELECT 1, ` + id + `, ` + pos + `, CASE WHEN g % 100 = 0 THEN 2 ELSE 1 END FROM ` + numbers,
		`INSERT INTO {replay} (id, plan, state, why, actor, begun, ended, total) SELECT g + 1, '{"Filter": {}}', 'done', ` + asBytes(`''`) + `, ` + asBytes(`'me'`) + `, g, g + 1, 1 FROM ` + numbers,
		`INSERT INTO {act} (id, at, actor, verb, subject, details) SELECT g + 600, g, ` + asBytes(`'me'`) + `, 'edit', 'message/1', '{}' FROM ` + numbers,
		map[store.Dialect]string{store.SQLite: `SELECT 1`, store.PostgreSQL: `ANALYZE`}[db.dialect], // SQLite is not analyzed in practice
	} {
		db.exec(t, regexp.MustCompile(`\{([a-z]+)\}`).ReplaceAllString(statement, a.Config().Prefix+"$1"))
	}
}

// pagesForPlans returns the queries for the pages of a console.
func pagesForPlans(a *store.Archive) map[string]func(context.Context) error {
	pages := map[string]func(context.Context) error{
		"queues":  func(ctx context.Context) error { _, err := a.Queues(ctx); return err },
		"group":   func(ctx context.Context) error { _, err := a.Group(ctx, 7); return err },
		"running": func(ctx context.Context) error { _, err := a.Running(ctx); return err },
		"replay":  func(ctx context.Context) error { _, err := a.Replay(ctx, 1); return err },
		"message": func(ctx context.Context) error { _, err := a.Get(ctx, 700); return err },
		"edits":   func(ctx context.Context) error { _, err := a.Edits(ctx, 700); return err },
		"replays": func(ctx context.Context) error { _, _, err := a.Replays(ctx, store.Page{}); return err },
		"acts": func(ctx context.Context) error {
			_, _, err := a.Acts(ctx, store.ActFilter{}, store.Page{})
			return err
		},
		"preview": func(ctx context.Context) error {
			_, _, err := replay.Preview(ctx, a, failed.Plan{Filter: failed.Filter{Group: 7}}, replay.Routing{})
			return err
		},
		"next": func(ctx context.Context) error { _, err := a.UnsentOf(ctx, 2, 10); return err },
		"sent": func(ctx context.Context) error { return a.Sent(ctx, 2, []failed.ID{7, 8}) },
		"refused": func(ctx context.Context) error {
			return a.MarkRefused(ctx, 2, []store.Refusal{{ID: 9, Why: "too large"}})
		},
		"outcome": func(ctx context.Context) error {
			return a.NoteOutcomes(ctx, []protocol.Outcome{{Replay: "2/7", Key: "x", Queue: "q1", Attempt: 1, Result: protocol.OutcomeSucceeded}})
		},
		"discard one": func(ctx context.Context) error {
			_, err := a.Discard(ctx, failed.Filter{IDs: []failed.ID{700}}, "so", "me")
			return err
		},
		"settled": func(ctx context.Context) error { return a.SettleOutcomes(ctx, []string{"q1"}, time.Now()) },
		"check": func(ctx context.Context) error {
			return a.Check(ctx, failed.Filter{Group: 1, Replay: 1, IDs: []failed.ID{7, 8}})
		},
	}
	for _, f := range []store.GroupFilter{
		{},
		{MostFailed: true},
		{State: failed.Failed},
		{State: failed.Failed, MostFailed: true},
		{State: failed.Replayed},
		{Queue: "q3"},
		{Queue: "q3", State: failed.Failed, MostFailed: true},
		{Text: "thing"},
		{Text: "nothing"},
	} {
		pages[fmt.Sprintf("groups %+v", f)] = func(ctx context.Context) error { _, _, err := a.Groups(ctx, f, store.Page{}); return err }
	}
	last := time.Unix(1_700_000_000+plannedFor, 0)
	for _, f := range []failed.Filter{
		{},
		{States: []failed.State{failed.Failed}},
		{States: []failed.State{failed.Replayed, failed.Discarded}},
		{Queue: "q3"},
		{Queue: "q3", States: []failed.State{failed.Failed}},
		{Group: 7},
		{Group: 7, States: []failed.State{failed.Failed}},
		{Group: 7, Queue: "q6"},
		{Since: last.Add(-time.Hour)},
		{Queue: "q3", Since: last.Add(-2 * time.Hour), Until: last.Add(-time.Hour)},
		{MinAttempts: 10, Queue: "q3"},
		{MinAttempts: 1000},
		{Refused: true},
		{IDs: []failed.ID{700, 800}},
		{Replay: 1},
		{SentBy: 1},
		{SentBy: 1, Outcome: failed.OutcomePending},
		{RefusedBy: 1},
		{RefusedBy: 1, States: []failed.State{failed.Failed}},
		{Text: "order"},
		{Text: "k7"},
		{Text: "k7", Queue: "q3"},
		{Text: "777"},
		{Text: "nobody"},
		{Text: "third other"},
		{Text: "order", States: []failed.State{failed.Discarded}},
		{Text: "nobody", States: []failed.State{failed.Discarded}},
		{Text: "order", MinAttempts: 1000},
		{Text: "order", Until: last.Add(-10 * time.Hour)},
		{Text: "order", SentBy: 1},
		{Text: "order", IDs: []failed.ID{700}},
		{Headers: map[string]string{"tenant": "a"}},
		{Error: "it failed after"},
		{Error: "ile"},
		{Error: "nothing"},
		{Queue: "q3", Error: "nothing"},
	} {
		pages[fmt.Sprintf("count %s", f)] = func(ctx context.Context) error { _, err := a.Count(ctx, f); return err }
		pages[fmt.Sprintf("list %s", f)] = func(ctx context.Context) error {
			_, next, err := a.List(ctx, f, store.Page{})
			if err == nil && next != "" {
				_, _, err = a.List(ctx, f, store.Page{After: next})
			}
			return err
		}
	}
	return pages
}

// maxSorted is the maximum number of rows that a page may sort: the number that it reads in one state, times the 4
// states.
const maxSorted = 4 * 10_000

// compiledCost is the default of jit_above_cost. PostgreSQL compiles a query with this estimate, even if it reads few rows.
const compiledCost = 100_000

var (
	growing    = []string{"message", "content", "revision", "delivery", "origin", "item", "search", "replay", "act", "acted"}
	wholeState = regexp.MustCompile(`(?m)SEARCH \w+ USING .*\(state=\?\)$`)
	scanned    = regexp.MustCompile(`(?m)SCAN (m|c|r|d|i|s|a|\w*_(?:` + strings.Join(growing, "|") + `))\b(?: USING .*)?$`)
)

// explain returns the plan of a query and its faults.
func (d database) explain(t *testing.T, q query, prefix string) (plan string, faults []string) {
	t.Helper()
	if d.dialect == store.SQLite {
		rows, err := d.Query("EXPLAIN QUERY PLAN "+q.text, q.args...)
		check(t, err)
		defer rows.Close()
		var id, parent, unused int
		var detail string
		for rows.Next() {
			check(t, rows.Scan(&id, &parent, &unused, &detail))
			plan += detail + "\n"
		}
		check(t, rows.Err())
		faults = scanned.FindAllString(plan, -1)
		if !strings.HasPrefix(q.text, "SELECT") && !strings.HasPrefix(q.text, "WITH") { // changes have no LIMIT
			faults = append(faults, wholeState.FindAllString(plan, -1)...)
		}
		return plan, faults
	}
	check(t, d.QueryRow("EXPLAIN (FORMAT JSON) "+q.text, q.args...).Scan(&plan))
	var plans []struct{ Plan planNode }
	check(t, json.Unmarshal([]byte(plan), &plans))
	if cost := plans[0].Plan.Cost; cost >= compiledCost {
		faults = append(faults, fmt.Sprintf("cost of %.0f", cost))
	}
	for p := range plans[0].Plan.each {
		table := strings.TrimPrefix(p.Relation, prefix)
		switch {
		case p.Node == "Seq Scan" && slices.Contains(growing, table),
			strings.HasPrefix(p.Node, "Index") && p.Condition == "" && slices.Contains(growing, table):
			faults = append(faults, p.Node+" of "+table)
		case strings.HasSuffix(p.Node, "Sort") && p.Rows > maxSorted:
			faults = append(faults, fmt.Sprintf("%s of %.0f rows", p.Node, p.Rows))
		}
	}
	return plan, faults
}

// planNode is a node in a plan of PostgreSQL.
type planNode struct {
	Node      string     `json:"Node Type"`
	Relation  string     `json:"Relation Name"`
	Index     string     `json:"Index Name"`
	Condition string     `json:"Index Cond"`
	Rows      float64    `json:"Plan Rows"`
	Cost      float64    `json:"Total Cost"`
	Plans     []planNode `json:"Plans"`
}

func (p planNode) each(yield func(planNode) bool) {
	if !yield(p) {
		return
	}
	for _, below := range p.Plans {
		below.each(yield)
	}
}

package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// traces returns the locations of a string in the database: the files of SQLite, or the rows of PostgreSQL.
func (d database) traces(t *testing.T, text string) (found []string) {
	t.Helper()
	if d.dialect == store.SQLite {
		path, _, _ := strings.Cut(strings.TrimPrefix(d.source, "file:"), "?")
		for _, name := range []string{path, path + "-wal", path + "-shm"} {
			content := value(os.ReadFile(name))(t)
			if bytes.Contains(bytes.ToLower(content), []byte(text)) {
				found = append(found, name)
			}
		}
		return found
	}
	tables, err := d.Query(`SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`)
	check(t, err)
	defer tables.Close()
	for tables.Next() {
		var table string
		check(t, tables.Scan(&table))
		var n int
		// PostgreSQL displays binary columns in hexadecimal.
		check(t, d.QueryRow(`SELECT count(*) FROM `+table+` x WHERE lower(x::text) LIKE $1 OR x::text LIKE $2`, "%"+text+"%", fmt.Sprintf("%%%x%%", text)).Scan(&n))
		if n > 0 {
			found = append(found, fmt.Sprintf("%s: %d", table, n))
		}
	}
	check(t, tables.Err())
	return found
}

// The database does not contain an erased string in contents, errors, edits, the search index, groups, replays or the
// audit log. The archive records the actor and the reason, and does not change other messages.
func TestEraseRemovesAllBytes(t *testing.T) {
	const secret = "zyxanna"
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		var arrivals []failed.Arrived
		for i := range 300 { // so that the secret is in more than one page
			name := fmt.Sprintf("%s%d", secret, i%3)
			if i%2 == 1 {
				name = fmt.Sprintf("other%d", i)
			}
			arrivals = append(arrivals, failed.Arrived{Message: failed.Message{
				FailedQueue: "q.failed", Exchange: name, RoutingKey: "customer." + name, Error: "no such customer " + name + strings.Repeat(" "+name, 200*(i%20/18)), Reason: "because of " + name,
				Errors: []reprise.AttemptError{{Attempt: 1, Error: "first " + name, Host: name}},
				Content: failed.Content{
					Body: []byte(strings.Repeat("{"+name+"} ", 50)), Headers: topology.Table{"customer": name, "nested": topology.Table{"deep": name}},
					Properties: failed.Properties{MessageID: "id-" + name, CorrelationID: name, RoutingKey: name},
				},
			}})
		}
		ids := value(a.Ingest(ctx, arrivals))(t)
		other := value(a.Get(ctx, ids[1]))(t)

		// Acts of several kinds store copies of the secret.
		one := failed.Filter{IDs: ids[:1]}
		check(t, a.Edit(ctx, ids[0], 0, failed.Content{Body: []byte("edited " + secret)}, "ann"))
		value(a.Discard(ctx, one, "called "+secret, "ann"))(t)
		value(a.Restore(ctx, one, "ann"))(t)
		check(t, a.Record(ctx, "ann", "publish", "", map[string]any{"exchange": secret + "0", "routing_key": "orders." + secret + "1", "message_id": "order-" + secret + "2"}))
		value(a.Discard(ctx, failed.Filter{Error: "customer " + secret + "1", Queue: "q"}, "test", "ann"))(t)
		edit := &failed.BulkEdit{Replace: []failed.Replacement{{Old: secret + "2", New: "<" + secret + "2>"}}}
		r := value(a.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{Text: secret + "2"}, Edit: edit, ByQueueName: true}, "ann"))(t)
		if done, err := a.Erase(ctx, failed.Filter{Text: secret + "2"}, "while it runs", "ann"); done != (store.Erasure{Left: r.Total}) || err != nil {
			t.Fatalf("erased %+v of a running replay (%v), want all left", done, err)
		}
		if would, err := a.WouldErase(ctx, failed.Filter{Text: secret + "2"}); would != (store.Erasure{Left: r.Total}) || err != nil {
			t.Errorf("WouldErase: got %+v, %v, want %d left", would, err, r.Total)
		}
		r = value(carryOut(ctx, a, r.ID, func(*reprise.Message) error { return nil }))(t)
		if r.Sent == 0 || r.Sent != r.Total {
			t.Fatalf("got replay %+v, want all messages sent", r)
		}
		if len(db.traces(t, secret)) == 0 {
			t.Fatal("secret not found before it is erased")
		}

		var total int64
		for i := range 3 {
			f := failed.Filter{Text: fmt.Sprint(secret, i)}
			would, err := a.WouldErase(ctx, f)
			check(t, err)
			f.AtMost = would.Total() - 1
			if done, err := a.Erase(ctx, f, "request 4711", "admin"); done != (store.Erasure{}) || !errors.Is(err, failed.ErrState) {
				t.Errorf("more messages than AtMost: got %+v, %v, want ErrState", done, err)
			}
			f.AtMost = would.Total()
			done := value(a.Erase(ctx, f, "request 4711", "admin"))(t)
			if done != would || done.Total() == 0 {
				t.Errorf("got %+v erased messages, want %+v", done, would)
			}
			total += done.Total()
		}
		if total != 150 {
			t.Errorf("got %d erased messages, want 150", total)
		}
		if found := db.traces(t, secret); found != nil {
			t.Errorf("secret found in %v", found)
		}

		// The archive keeps all other data.
		if d := gocmp.Diff(other, value(a.Get(ctx, ids[1]))(t), same); d != "" {
			t.Errorf("another message changed: %s", d)
		}
		m := value(a.Get(ctx, ids[0]))(t)
		if !m.Erased || m.State != failed.Discarded || m.Queue != "q" || m.LastFailed.IsZero() || m.Attempts != other.Attempts || m.Revision != 0 || m.Discarded == "" {
			t.Errorf("got message %+v, want an erased, discarded message with its queue and times", m)
		}
		if n := value(a.Restore(ctx, failed.Filter{All: true}, "ann"))(t); n != 0 {
			t.Errorf("restored %d erased messages, want 0", n)
		}
		acts, _, err := a.Acts(ctx, store.ActFilter{}, store.Page{})
		check(t, err)
		act := acts[0]
		if act.Verb != "erase" || act.Actor != "admin" || fmt.Sprint(act.Details["messages"], "/", act.Details["reason"]) != "50/request 4711" || fmt.Sprint(act.Details["filter"]) != "map[text:[erased]]" {
			t.Errorf("got act %+v, want erase by admin of 50 messages, reason \"request 4711\", erased filter", act)
		}
		if len(acts) != 10 { // edit, discard, restore, publish, discard, replay, end replay, 3 × erase
			t.Errorf("got %d acts, want 10", len(acts))
		}
		queues := value(a.Queues(ctx))(t)
		if c := queues[0].Counts; c.Failed != 150 || c.Discarded+c.Replayed != 150 {
			t.Errorf("got counts %+v, want 150 failed, 150 discarded or replayed", c)
		}
		if r := value(a.Replay(ctx, r.ID))(t); r.Plan.Edit != nil || r.Plan.Filter.Text != "[erased]" || r.Sent != r.Total {
			t.Errorf("got replay %+v, want no edit, erased filter, all messages sent", r)
		}
		if list, _, err := a.List(ctx, failed.Filter{Text: secret + "0"}, store.Page{}); len(list) != 0 || err != nil {
			t.Errorf("search for an erased word: got %d messages, %v, want 0", len(list), err)
		}
		var lines bytes.Buffer
		if n := value(a.Export(ctx, failed.Filter{}, &lines))(t); n != 150 {
			t.Errorf("got %d exported messages, want 150", n)
		}
		value(a.Erase(ctx, failed.Filter{All: true, AtMost: 150}, "the rest", "admin"))(t)
		if n := value(a.Erase(ctx, failed.Filter{All: true}, "again", "admin"))(t).Total(); n != 0 {
			t.Errorf("erased %d messages twice, want 0", n)
		}
	})
}

// A group keeps its fingerprint while it has messages that are not erased, and shows the error of one of them.
func TestEraseUpdatesGroup(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		add := func(number int) failed.ID {
			return value(a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed", Error: fmt.Sprint("declined ", number)}}}))(t)[0]
		}
		first, second := add(1), add(2)
		group := value(a.Get(ctx, first))(t).Group
		value(a.Erase(ctx, failed.Filter{IDs: []failed.ID{second}}, "r", "me"))(t)
		if g := value(a.Group(ctx, group))(t); g.Example != "declined 1" || g.Text != "declined *" {
			t.Errorf("got group %+v, want the example and text of \"declined 1\"", g)
		}
		value(a.Erase(ctx, failed.Filter{IDs: []failed.ID{first}}, "r", "me"))(t)
		if g := value(a.Group(ctx, group))(t); g.Example != "[erased]" || g.Text != "[erased]" {
			t.Errorf("got group %+v, want the example and text \"[erased]\"", g)
		}
		if m := value(a.Get(ctx, add(3)))(t); m.Group == group {
			t.Error("new failure belongs to the erased group")
		}
	})
}

func TestEraseRefusesInvalidArguments(t *testing.T) {
	a := openSQLite(t).archive(t)
	for _, c := range []struct {
		f      failed.Filter
		reason string
		who    failed.Actor
	}{{failed.Filter{All: true}, " ", "me"}, {failed.Filter{All: true}, "r", ""}, {failed.Filter{}, "r", "me"}, {failed.Filter{Text: "!"}, "r", "me"}} {
		if _, err := a.Erase(ctx, c.f, c.reason, c.who); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("%+v: got error %v, want ErrInvalid", c, err)
		}
	}
	if n, err := a.Erase(ctx, failed.Filter{Queue: "none"}, "r", "me"); n != (store.Erasure{}) || err != nil {
		t.Errorf("filter without messages: got %d, %v, want 0", n, err)
	}
}

// The search index no longer contains the words of an erased message, even if only one of many messages was erased.
func TestEraseRemovesWordsFromSearchIndex(t *testing.T) {
	const secret = "xqzsecretq"
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		var arrivals []failed.Arrived
		for i := range 1000 {
			arrivals = append(arrivals, failed.Arrived{Message: failed.Message{FailedQueue: "q.failed", Content: failed.Content{Body: fmt.Appendf(nil, "word%d", i)}}})
		}
		arrivals[500].Body = []byte(secret)
		ids := value(a.Ingest(ctx, arrivals))(t)
		value(a.Erase(ctx, failed.Filter{IDs: ids[500:501]}, "r", "me"))(t)
		if found := db.traces(t, secret[1:]); found != nil {
			t.Errorf("word found in %v", found)
		}
	})
}

// Erase finds personal data in all states, in values that the configuration hides from searches, and in edits.
func TestEraseFindsHiddenValuesInAllStates(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t, func(c *store.Config) {
			c.Redact = []failed.Rule{{Header: "Authorization"}, {Path: "card.holder"}}
		})
		content := func(body string, headers topology.Table) failed.Message {
			return failed.Message{Queue: "q", FailedQueue: "q.failed", Error: "card declined", Content: failed.Content{Body: []byte(body), Headers: headers}}
		}
		holder := content(`{"card":{"holder":"Anna Example"}}`, nil)
		ids := value(a.Add(ctx, []failed.Message{
			holder, holder, holder, // in states failed, discarded, replayed
			content(`{"card":{"holder":"Bob Other"}}`, nil),
			content(`{}`, topology.Table{"authorization": "Basic anna example"}),
			content(`{}`, topology.Table{"nested": topology.Table{"AUTHORIZATION": topology.Table{"user": "anna", "domain": []any{"example"}}}}),
			content(`{}`, nil), // edited
			content(`{"name":"anna example"}`, nil),
			holder, // in state replaying
		}))(t)
		value(a.Discard(ctx, failed.Filter{IDs: ids[1:2]}, "test", "ann"))(t)
		r := value(a.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{IDs: ids[2:3]}, ByQueueName: true}, "ann"))(t)
		value(carryOut(ctx, a, r.ID, func(*reprise.Message) error { return nil }))(t)
		check(t, a.Edit(ctx, ids[6], 0, failed.Content{Body: []byte("for anna example")}, "ann"))
		value(a.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{IDs: ids[8:]}, ByQueueName: true}, "ann"))(t)

		f := failed.Filter{Text: "anna example"}
		if total := value(a.Count(ctx, f))(t); total.N != 1 {
			t.Errorf("a search found %d messages, want only the value that is not hidden", total.N)
		}
		want := store.Erasure{Counts: store.Counts{Failed: 5, Replayed: 1, Discarded: 1}, Left: 1}
		if would := value(a.WouldErase(ctx, f))(t); would != want {
			t.Errorf("WouldErase: got %+v, want %+v", would, want)
		}
		header := failed.Filter{Headers: map[string]string{"authorization": "Basic anna example"}}
		if would := value(a.WouldErase(ctx, header))(t); would.Failed != 1 || would.Total() != 1 {
			t.Errorf("WouldErase by a hidden header: got %+v, want 1 failed", would)
		}
		f.Through = ids[7]
		want.Left = 0
		if done := value(a.Erase(ctx, f, "request", "ann"))(t); done != want {
			t.Errorf("Erase: got %+v, want %+v", done, want)
		}
		for i, id := range ids {
			if m := value(a.Get(ctx, id))(t); m.Erased == (i == 3 || i == 8) {
				t.Errorf("message %d erased: got %v", id, m.Erased)
			}
		}
	})
}

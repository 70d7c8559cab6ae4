package store_test

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/topology"
)

// groupsByText returns the number of messages of each group, by its text.
func groupsByText(t rapid.TB, a *store.Archive) map[string]int64 {
	t.Helper()
	groups, _, err := a.Groups(context.Background(), store.GroupFilter{}, store.Page{Size: 500})
	check(t, err)
	all := map[string]int64{}
	for _, g := range groups {
		list, _, err := a.List(context.Background(), failed.Filter{Group: g.ID}, store.Page{Size: 500})
		check(t, err)
		if int64(len(list)) != g.Counts.Total() {
			t.Errorf("group %q: got %d messages, want %d as counted", g.Text, len(list), g.Counts.Total())
		}
		var days int64
		for _, d := range g.Days {
			days += d.N
		}
		if days != g.Counts.Total() {
			t.Errorf("group %q: got %d failures in the trend, want %d", g.Text, days, g.Counts.Total())
		}
		for _, m := range list {
			if m.Group != g.ID {
				t.Errorf("message %d: got group %d, want %d", m.ID, m.Group, g.ID)
			}
		}
		all[g.Text] = g.Counts.Total()
	}
	return all
}

func groupIDs(t rapid.TB, a *store.Archive, texts ...string) (ids []failed.GroupID) {
	t.Helper()
	groups, _, err := a.Groups(context.Background(), store.GroupFilter{}, store.Page{Size: 500})
	check(t, err)
	for _, g := range groups {
		if slices.Contains(texts, g.Text) {
			ids = append(ids, g.ID)
		}
	}
	if len(ids) != len(texts) {
		t.Fatalf("got groups %v, want groups with the texts %q", groups, texts)
	}
	return ids
}

func TestMergeAndUnmerge(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		ctx := t.Context()
		add := func(texts ...string) {
			for _, text := range texts {
				value(a.Add(ctx, []failed.Message{{Queue: "orders", FailedQueue: "orders.failed", Error: text, LastFailed: c.now(), Content: failed.Content{Body: []byte("body of " + text)}}}))(t)
			}
		}
		expect := func(want map[string]int64) {
			t.Helper()
			if diff := cmp.Diff(want, groupsByText(t, a)); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		}
		add("customer Ada is blocked", "customer Bob is blocked", "customer Bob is blocked", "no route")
		value(a.Discard(ctx, failed.Filter{Group: groupIDs(t, a, "customer Ada is blocked")[0]}, "known", "me"))(t)
		both := groupIDs(t, a, "customer Ada is blocked", "customer Bob is blocked")
		check(t, a.Mute(ctx, both[0], c.now().Add(time.Hour), "me"))
		into := value(a.Merge(ctx, both, " blocked\ncustomer ", "me"))(t)
		expect(map[string]int64{"blocked customer": 3, "no route": 1})
		g := value(a.Group(ctx, into))(t)
		if !g.Merged || g.Counts != (store.Counts{Failed: 2, Discarded: 1}) || g.MutedAt(c.now()) {
			t.Errorf("got %+v, want a merged group with 2 failed and 1 discarded messages, not muted", g)
		}
		// Failures of merged kinds arrive in the group, also retries.
		add("customer Ada is blocked", "customer Bob is blocked")
		expect(map[string]int64{"blocked customer": 5, "no route": 1})
		// The search finds messages that were indexed under another group.
		for text, want := range map[string]int{"bob": 3, "body": 5, "route": 0} {
			list, _, err := a.List(ctx, failed.Filter{Group: into, Text: text}, store.Page{})
			check(t, err)
			if len(list) != want {
				t.Errorf("search for %q in the merged group: got %d messages, want %d", text, len(list), want)
			}
		}
		// A merged group can be merged again, and renamed.
		into = value(a.Merge(ctx, append(groupIDs(t, a, "no route"), into), "all", "me"))(t)
		add("customer Ada is blocked")
		expect(map[string]int64{"all": 7})
		into = value(a.Merge(ctx, []failed.GroupID{into}, "renamed", "me"))(t)
		add("no route")
		expect(map[string]int64{"renamed": 8})
		value(a.Unmerge(ctx, into, "me"))(t)
		expect(map[string]int64{"customer Ada is blocked": 3, "customer Bob is blocked": 3, "no route": 2})
		if _, err := a.Unmerge(ctx, groupIDs(t, a, "no route")[0], "me"); !errors.Is(err, failed.ErrState) {
			t.Errorf("undo of a group that is not merged: got %v, want ErrState", err)
		}
		add("no route")
		expect(map[string]int64{"customer Ada is blocked": 3, "customer Bob is blocked": 3, "no route": 3})
		list, _, err := a.List(ctx, failed.Filter{Group: groupIDs(t, a, "no route")[0], Text: "route"}, store.Page{})
		check(t, err)
		if len(list) != 3 {
			t.Errorf("search in a group after the undo: got %d messages, want 3", len(list))
		}
		acts, _, err := a.Acts(ctx, store.ActFilter{Text: "merge"}, store.Page{})
		check(t, err)
		var verbs []string
		for _, act := range acts {
			verbs = append(verbs, act.Verb)
		}
		if want := []string{"unmerge group", "merge groups", "merge groups", "merge groups"}; !slices.Equal(verbs, want) {
			t.Errorf("got acts %q, want %q", verbs, want)
		}
	})
}

// The text of a merge can be the text of an error, so erasing the messages also erases it.
func TestEraseMergedGroup(t *testing.T) {
	a := openSQLite(t).archive(t)
	ctx := t.Context()
	add := func() {
		value(a.Add(ctx, []failed.Message{{Queue: "q", Error: "customer Ada is blocked"}, {Queue: "q", Error: "customer Bob is blocked"}}))(t)
	}
	add()
	into := value(a.Merge(ctx, groupIDs(t, a, "customer Ada is blocked", "customer Bob is blocked"), "customer Ada is blocked", "me"))(t)
	value(a.Erase(ctx, failed.Filter{Group: into}, "asked for", "me"))(t)
	add()
	if diff := cmp.Diff(map[string]int64{"[erased]": 2, "customer Ada is blocked": 1, "customer Bob is blocked": 1}, groupsByText(t, a)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func TestMergeRefuses(t *testing.T) {
	a := openSQLite(t).archive(t)
	ids := value(a.Add(t.Context(), []failed.Message{{Queue: "a", Error: "down"}, {Queue: "b", Error: "down"}}))(t)
	var groups []failed.GroupID
	for _, id := range ids {
		groups = append(groups, value(a.Get(t.Context(), id))(t).Group)
	}
	for name, c := range map[string]struct {
		ids  []failed.GroupID
		name string
		who  failed.Actor
		want error
	}{
		"two queues":    {groups, "down", "me", failed.ErrInvalid},
		"no name":       {groups[:1], " \n", "me", failed.ErrInvalid},
		"no groups":     {nil, "down", "me", failed.ErrInvalid},
		"unknown group": {append(groups[:1:1], 99), "down", "me", failed.ErrNotFound},
		"no actor":      {groups[:1], "down", "", failed.ErrInvalid},
	} {
		if _, err := a.Merge(t.Context(), c.ids, c.name, c.who); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if got := groupsByText(t, a); len(got) != 1 || got["down"] != 1 {
		t.Errorf("got groups %v, want no change", got)
	}
}

func TestGroupRules(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		plain := db.archive(t)
		ctx := t.Context()
		messages := []failed.Message{
			{Queue: "orders", Error: "bank says: no funds on account of Ada"},
			{Queue: "orders", Error: "bank says: no funds on account of Bob"},
			{Queue: "orders", Error: "bank says: card expired (Ada)\nat line 3"},
			{Queue: "mails", Error: "bank says: no funds on account of Ada"},
			{Queue: "mails", Error: "unreachable"},
		}
		value(plain.Add(ctx, messages))(t)
		rules := func(c *store.Config) {
			c.Prefix = plain.Config().Prefix
			c.Groups = []store.GroupRule{
				{Queue: "orders", Error: regexp.MustCompile(`bank says: ([a-z ]+[a-z]) (?:on|\()`), Name: "bank: $1"},
				{Error: regexp.MustCompile(`(?i)ADA`), Name: "about Ada"},
			}
		}
		a := db.open(t, rules)
		value(a.Add(ctx, messages[:1]))(t)
		want := map[string]int64{"bank: no funds": 1}
		if got := groupsByText(t, a); got["bank: no funds"] != 1 {
			t.Errorf("got groups %v, want a new message in the group %v", got, want)
		}
		if n := value(a.Regroup(ctx, "orders", "me"))(t); n != 3 {
			t.Errorf("got %d moved messages of queue orders, want 3", n)
		}
		if n := value(a.Regroup(ctx, "", "me"))(t); n != 1 {
			t.Errorf("got %d moved messages of the other queues, want 1", n)
		}
		if n := value(a.Regroup(ctx, "", "me"))(t); n != 0 {
			t.Errorf("got %d moved messages in a second run, want 0", n)
		}
		want = map[string]int64{"bank: no funds": 3, "bank: card expired": 1, "about Ada": 1, "unreachable": 1}
		if diff := cmp.Diff(want, groupsByText(t, a)); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
		// Merges apply to the names of rules, too.
		value(a.Merge(ctx, groupIDs(t, a, "bank: no funds", "bank: card expired"), "bank", "me"))(t)
		value(a.Add(ctx, messages))(t)
		want = map[string]int64{"bank": 7, "about Ada": 2, "unreachable": 2}
		if diff := cmp.Diff(want, groupsByText(t, a)); diff != "" {
			t.Errorf("groups after the merge (-want +got):\n%s", diff)
		}
		// Without the rules, the messages return to the fingerprints of their errors.
		value(plain.Regroup(ctx, "mails", "me"))(t)
		want = map[string]int64{"bank": 7, "bank says: no funds on account of Ada": 2, "unreachable": 2}
		if diff := cmp.Diff(want, groupsByText(t, a)); diff != "" {
			t.Errorf("groups without the rules (-want +got):\n%s", diff)
		}
	})
}

// After any acts, the counts and trends of groups are those of their messages, and equal errors are in one group.
func TestRegroupingKeepsCounts(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		rapid.Check(t, func(t *rapid.T) {
			db.empty(t, a)
			ctx := context.Background()
			n := 0
			pick := func() []failed.GroupID {
				groups, _, err := a.Groups(ctx, store.GroupFilter{}, store.Page{Size: 500})
				check(t, err)
				var ids []failed.GroupID
				for _, g := range groups {
					ids = append(ids, g.ID)
				}
				if len(ids) == 0 {
					return nil
				}
				return rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, len(ids), rapid.ID).Draw(t, "groups")
			}
			t.Repeat(map[string]func(*rapid.T){
				"add": func(t *rapid.T) {
					var messages []failed.Message
					for _, text := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 8).Draw(t, "errors") {
						messages = append(messages, failed.Message{Queue: "q", Error: text, LastFailed: c.now().Add(-time.Duration(n%50) * time.Hour)})
						n++
					}
					value(a.Add(ctx, messages))(t)
				},
				"discard": func(t *rapid.T) {
					if ids := pick(); ids != nil {
						value(a.Discard(ctx, failed.Filter{Group: ids[0]}, "known", "me"))(t)
					}
				},
				"merge": func(t *rapid.T) {
					if ids := pick(); ids != nil {
						value(a.Merge(ctx, ids, rapid.SampledFrom([]string{"a", "b", "x", "y"}).Draw(t, "name"), "me"))(t)
					}
				},
				"unmerge": func(t *rapid.T) {
					if ids := pick(); ids != nil {
						if _, err := a.Unmerge(ctx, ids[0], "me"); err != nil && !errors.Is(err, failed.ErrState) {
							t.Fatal(err)
						}
					}
				},
			})
			var sum int64
			for n := range maps.Values(groupsByText(t, a)) {
				sum += n
			}
			if sum != int64(n) {
				t.Fatalf("got %d messages in groups, want %d", sum, n)
			}
			value(a.Regroup(ctx, "", "me"))(t)
			list, _, err := a.List(ctx, failed.Filter{}, store.Page{Size: 500})
			check(t, err)
			of := map[string]failed.GroupID{}
			for _, m := range list {
				if id, found := of[m.Error]; found && id != m.Group {
					t.Fatalf("error %q: got groups %d and %d, want one", m.Error, id, m.Group)
				}
				of[m.Error] = m.Group
			}
		})
	})
}

// Names that other programs or users choose can contain any bytes and have any length.
func TestMergeHostileNames(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		ctx := t.Context()
		for i, text := range []string{"\x00", "\xff\xfe", "a\x00b\u202e", strings.Repeat("q", 255), "'; DROP TABLE", `{"a":1}`} {
			queue := text + "queue"
			queue = queue[:min(len(queue), 255)]
			value(a.Add(ctx, []failed.Message{
				{Queue: queue, Error: "first" + text, Content: failed.Content{Body: []byte(text), Headers: topology.Table{text: text}}},
				{Queue: queue, Error: "second" + text, Content: failed.Content{Body: []byte(text)}},
			}))(t)
			groups, _, err := a.Groups(ctx, store.GroupFilter{Queue: params.Text(queue)}, store.Page{})
			check(t, err)
			into := value(a.Merge(ctx, []failed.GroupID{groups[0].ID, groups[1].ID}, "name "+text, "me"))(t)
			list, _, err := a.List(ctx, failed.Filter{Group: into}, store.Page{})
			check(t, err)
			for _, detail := range value(a.Details(ctx, list, nil))(t) {
				if !utf8.ValidString(detail) {
					t.Errorf("%q: detail %q is not UTF-8", text, detail)
				}
			}
			if n := value(a.Unmerge(ctx, into, "me"))(t); n != 2 {
				t.Errorf("%q: undo moved %d messages, want 2", text, n)
			}
			if n := value(a.Regroup(ctx, queue, "me"))(t); n != 0 {
				t.Errorf("%q: got %d regrouped messages, want 0", text, n)
			}
			acts, _, err := a.Acts(ctx, store.ActFilter{}, store.Page{})
			check(t, err)
			if len(acts) != 3*(i+1) {
				t.Errorf("%q: got %d acts, want %d", text, len(acts), 3*(i+1))
			}
		}
	})
}

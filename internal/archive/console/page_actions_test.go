package console

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// states returns the state of every message in an archive.
func states(t *testing.T, a *store.Archive) map[failed.ID]failed.State {
	t.Helper()
	all := map[failed.ID]failed.State{}
	for m, err := range a.Each(t.Context(), failed.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all[m.ID] = m.State
	}
	return all
}

// moved returns the IDs of the messages whose state differs between two results of the function states.
func moved(before, after map[failed.ID]failed.State) []failed.ID {
	var ids []failed.ID
	for id := failed.ID(1); int(id) <= len(after); id++ {
		if before[id] != after[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// linkTo returns the URL of the link to path on a page, which must contain exactly one such link.
func linkTo(t *testing.T, body, path string) string {
	t.Helper()
	found := regexp.MustCompile(`href="(`+regexp.QuoteMeta(path)+`\?[^"]*)"`).FindAllStringSubmatch(body, -1)
	if len(found) != 1 {
		t.Fatalf("got %d links to %s, want 1: %s", len(found), path, body)
	}
	return html.UnescapeString(found[0][1])
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// fieldsOf returns the hidden fields of the forms in the main part of a page, without the random field submission.
func fieldsOf(body string) url.Values {
	v := url.Values{}
	_, body, _ = strings.Cut(body, "<main")
	for _, m := range hidden.FindAllStringSubmatch(body, -1) {
		v.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	v.Del("submission")
	return v
}

// threeGroups archives three error groups of 3, 2 and 4 messages, in two queues.
func threeGroups(t *testing.T, a *store.Archive) {
	t.Helper()
	for _, g := range []struct {
		queue, error string
		n            int
	}{{"orders", "card declined", 3}, {"orders", "no stock", 2}, {"mails", "mailbox full", 4}} {
		for range g.n {
			add(t, a, func(m *failed.Message) { m.Queue, m.FailedQueue, m.Error = g.queue, g.queue+".failed", g.error })
		}
	}
}

func TestActionsApplyToFilterOfPage(t *testing.T) {
	group2 := []failed.ID{4, 5}
	for _, page := range []string{"/groups/2", "/messages?group=2", "/messages?text=stock&queue=orders", "/messages?error=" + url.QueryEscape("no stock")} {
		for path, reason := range map[string]string{"/discard": "tested", "/replays": ""} {
			a := newArchive(t, store.Config{})
			threeGroups(t, a)
			c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
			to := path
			if path == "/replays" {
				to = "/replays/new"
			}
			form := ask(t, c, "GET", linkTo(t, ask(t, c, "GET", page, nil).Body.String(), to), nil).Body.String()
			if !strings.Contains(form, "2 messages</h1>") {
				t.Errorf("number of messages in %s of %s: got %s, want \"2 messages</h1>\"", to, page, form)
			}
			v := fieldsOf(form)
			if reason != "" {
				v.Set("reason", reason)
			}
			before := states(t, a)
			if status, _, body := post(t, c, path, v); status != http.StatusSeeOther {
				t.Errorf("%s of %s: got status %d, want 303; body %s", path, page, status, body)
			}
			if got := moved(before, states(t, a)); fmt.Sprint(got) != fmt.Sprint(group2) {
				t.Errorf("%s of %s changed %v, want %v", path, page, got, group2)
			}
		}
	}
}

// An action accepts only a valid selection. It refuses an unknown, malformed or empty selection, so that such a
// selection does not apply to all messages. A refused action has no effect.
func TestPagesRefuseInvalidSelections(t *testing.T) {
	a := newArchive(t, store.Config{})
	threeGroups(t, a)
	c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
	before := states(t, a)
	for query, want := range map[string]int{
		"":                              400, // must not select all messages
		"state=failed":                  400,
		"group%3d2%26state%3dfailed=":   400, // the escaped query
		"group%3d2%26state%3dfailed":    400,
		"group=2&stat=failed":           400,
		"group=2&state=":                400,
		"group=two":                     400,
		"group=0":                       400,
		"group=2&group=3":               400,
		"group=2;queue=orders":          400,
		"group=%zz":                     400,
		"group=2&state=replayed":        400,
		"group=2&all=true":              400,
		"all=yes":                       400,
		"text=stock&since=yesterday":    400,
		"group=999":                     404,
		"id=999":                        404,
		"refused_by=999":                404,
		"replay=999":                    404,
		"group=2":                       200,
		"group=2&state=failed":          200,
		"all=true":                      200,
		"id=4&id=5":                     200,
		"queue=unknown":                 200,
		"group=2&did=discarded":         400,
		"group=2&after=x":               400,
		"header=tenant":                 400,
		"min_attempts=9&max_attempts=1": 400,
	} {
		for _, path := range []string{"/discard", "/replays/new"} {
			if w := ask(t, c, "GET", path+"?"+query, nil); w.Code != want {
				t.Errorf("GET %s?%s: status %d, want %d", path, query, w.Code, want)
			}
		}
		if want == http.StatusOK {
			continue
		}
		v, err := url.ParseQuery(query)
		if err != nil {
			continue
		}
		for _, path := range []string{"/discard", "/replays", "/restore"} {
			w := url.Values{"at_most": {"99"}}
			if path == "/discard" {
				w.Set("reason", "tested")
			}
			maps.Copy(w, v)
			if status, _, _ := post(t, c, path, w); status != want && status != http.StatusBadRequest {
				t.Errorf("POST %s with %s: status %d, want %d", path, query, status, want)
			}
		}
	}
	for name, form := range map[string]struct {
		path string
		v    url.Values
	}{
		"discard without a selection": {"/discard/picked", url.Values{}},
		"replay without a selection":  {"/replays/picked", url.Values{}},
		"form and query":              {"/discard?group=2", url.Values{"id": {"1"}, "reason": {"x"}}},
		"unknown field":               {"/replays", url.Values{"id": {"1"}, "rat": {"5"}}},
		"unknown target":              {"/replays", url.Values{"id": {"1"}, "to": {"othr"}}},
	} {
		if status, _, _ := post(t, c, form.path, form.v); status/100 != 4 {
			t.Errorf("%s: got status %d, want 4xx", name, status)
		}
	}
	if got := moved(before, states(t, a)); got != nil {
		t.Errorf("messages %v changed", got)
	}
}

func TestPagesRefuseUnknownParameters(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	add(t, c.cfg.Archive, nil)
	if _, err := c.cfg.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "test"); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range c.routes() {
		if r.Method != "GET" || r.IsAPI() || r.Path == "/live" || strings.HasPrefix(r.Path, "/assets") {
			continue
		}
		n++
		path := strings.NewReplacer("{$}", "", "{id}", "1", "{number}", "1").Replace(r.Path)
		for _, query := range []string{"nonsense=1", "group%3d1=", "=1", "%zz=1"} {
			if w := ask(t, c, "GET", path+"?"+query, nil); w.Code != http.StatusBadRequest {
				t.Errorf("GET %s?%s: got status %d, want 400", path, query, w.Code)
			}
		}
	}
	if n < 15 {
		t.Errorf("only %d pages were tested, want at least 15", n)
	}
	for path, want := range map[string]int{
		"/messages?group=999": 404, "/messages?id=999": 404, "/messages?replay=999": 404, "/messages?refused_by=999": 404, "/groups/999": 404, "/messages/999": 404, "/replays/999": 404,
		"/messages?group=1&state=lost": 400, "/groups?order=odd": 400, "/groups?state=lost": 400, "/groups/1?span=weeks": 400, "/messages?after=": 200, "/messages?did=nothing": 400, "/messages?did=discarded&n=x": 400, "/messages/1?did=discarded&undo=x": 400,
	} {
		if w := ask(t, c, "GET", path, nil); w.Code != want {
			t.Errorf("GET %s: status %d, want %d", path, w.Code, want)
		}
	}
}

// An action on a group or a search that grows applies to exactly the messages that its confirmation page showed, also if
// the page shows the form again or first counts the messages.
func TestActionsExcludeMessagesThatArriveAfterThePage(t *testing.T) {
	for _, act := range []struct {
		form, path string
		from       failed.State
	}{{"/replays/new", "/replays", failed.Failed}, {"/discard", "/discard", failed.Failed}, {"/restore", "/restore", failed.Discarded}, {"/erase", "/erase", failed.Failed}} {
		for _, query := range []string{"group=2", "queue=orders", "text=stock", "min_attempts=1"} {
			a := newArchive(t, store.Config{})
			threeGroups(t, a)
			c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
			arrive := func() {
				id := add(t, a, func(m *failed.Message) { m.Queue, m.FailedQueue, m.Error = "orders", "orders.failed", "no stock" })
				if act.from == failed.Discarded {
					if _, err := a.Discard(t.Context(), failed.Filter{IDs: []failed.ID{id}}, "tested", "test"); err != nil {
						t.Fatal(err)
					}
				}
			}
			arrive()
			form := fieldsOf(ask(t, c, "GET", act.form+"?"+query, nil).Body.String())
			shown := form.Get("at_most")
			arrive()
			if act.path == "/discard" { // without a reason, the page shows the form again
				status, _, body := post(t, c, act.path, form)
				if form = fieldsOf(body); status != http.StatusUnprocessableEntity {
					t.Errorf("%s?%s without a reason: got status %d, want 422", act.path, query, status)
				}
				arrive()
			}
			if act.path == "/erase" {
				form.Set("count", shown)
			}
			if act.path == "/erase" || act.path == "/discard" {
				form.Set("reason", "tested")
			}
			before := states(t, a)
			status, location, body := post(t, c, act.path, form)
			if status != http.StatusSeeOther {
				t.Errorf("%s?%s: got status %d, want 303: %.2000s", act.path, query, status, body)
			}
			got := moved(before, states(t, a))
			if act.path == "/erase" {
				if !strings.Contains(location, "n="+shown) {
					t.Errorf("erase?%s: got %s, want n=%s", query, location, shown)
				}
				continue
			}
			if strconv.Itoa(len(got)) != shown {
				t.Errorf("%s?%s changed %v, want the %s messages of the page", act.path, query, got, shown)
			}
		}
	}
}

// An action that would apply to more messages than its page showed changes nothing, because messages that arrived before
// the page returned to the state of the selection. The page then shows the new number, which the user can confirm.
func TestActionsRefuseMoreMessagesThanShown(t *testing.T) {
	for _, act := range []struct {
		form, path string
		move       func(*store.Archive, failed.Filter) (int64, error)
	}{
		{"/replays/new", "/replays", func(a *store.Archive, f failed.Filter) (int64, error) { return a.Restore(t.Context(), f, "test") }},
		{"/discard", "/discard", func(a *store.Archive, f failed.Filter) (int64, error) { return a.Restore(t.Context(), f, "test") }},
		{"/restore", "/restore", func(a *store.Archive, f failed.Filter) (int64, error) {
			return a.Discard(t.Context(), f, "tested", "test")
		}},
	} {
		a := newArchive(t, store.Config{})
		threeGroups(t, a)
		c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
		failing := func(m *failed.Message) { m.Queue, m.FailedQueue, m.Error = "orders", "orders.failed", "no stock" }
		one, other, third := add(t, a, failing), add(t, a, failing), add(t, a, failing)
		if _, err := a.Discard(t.Context(), failed.Filter{IDs: []failed.ID{other, third}}, "tested", "test"); err != nil {
			t.Fatal(err)
		}
		v := fieldsOf(ask(t, c, "GET", act.form+"?group=2", nil).Body.String())
		if act.path == "/discard" {
			v.Set("reason", "tested")
		}
		back := other
		if act.path == "/restore" {
			back = one
		}
		if n, err := act.move(a, failed.Filter{IDs: []failed.ID{back}}); n != 1 || err != nil {
			t.Fatalf("got %d messages, error %v", n, err)
		}
		before := states(t, a)
		status, _, body := post(t, c, act.path, v)
		if status != http.StatusConflict || !strings.Contains(body, "nothing was changed") || !strings.Contains(body, `role="alert"`) {
			t.Errorf("POST %s: got status %d, want 409; body %.2000s", act.path, status, body)
		}
		if got := moved(before, states(t, a)); got != nil {
			t.Errorf("%s changed %v", act.path, got)
		}
		again := fieldsOf(body)
		if act.path == "/discard" {
			again.Set("reason", "tested")
		}
		if status, _, body := post(t, c, act.path, again); status != http.StatusSeeOther {
			t.Errorf("second POST %s: got status %d, want 303; body %.2000s", act.path, status, body)
		}
		if got := moved(before, states(t, a)); strconv.Itoa(len(got)) != again.Get("at_most") {
			t.Errorf("second POST %s changed %v, want %s", act.path, got, again.Get("at_most"))
		}
	}
}

// After a discard, the link to the discarded messages has the same filter as the discard.
func TestDiscardResultLinksToSameFilter(t *testing.T) {
	a := newArchive(t, store.Config{})
	threeGroups(t, a)
	c := newConsole(t, Config{Archive: a})
	v := fieldsOf(ask(t, c, "GET", "/discard?text=stock", nil).Body.String())
	v.Set("reason", "tested")
	_, location, _ := post(t, c, "/discard", v)
	body := ask(t, c, "GET", location, nil).Body.String()
	link := regexp.MustCompile(`<a href="([^"]*)">Show discarded messages`).FindStringSubmatch(body)
	if link == nil {
		t.Fatalf("GET %s: no link to the discarded messages: %s", location, body)
	}
	if body := ask(t, c, "GET", html.UnescapeString(link[1]), nil).Body.String(); !strings.Contains(body, "2 messages: with the words “stock”") {
		t.Errorf("GET %s: got %s, want \"2 messages: with the words “stock”\"", link[1], body)
	}
	if tabs := regexp.MustCompile(`href="([^"]*did=[^"]*)"`).FindAllString(body, -1); tabs != nil {
		t.Errorf("links repeat the result of the action: %v", tabs)
	}
}

// If another user has discarded some of the messages in the meantime, an undo would also restore these messages, so the
// page does not offer an undo.
func TestUndoIsHiddenAfterConcurrentDiscard(t *testing.T) {
	a := newArchive(t, store.Config{})
	threeGroups(t, a)
	c := newConsole(t, Config{Archive: a})
	form := ask(t, c, "GET", "/discard?id=4&id=5", nil).Body.String()
	if _, err := a.Discard(t.Context(), failed.Filter{IDs: []failed.ID{4}}, "fraud", "ann"); err != nil {
		t.Fatal(err)
	}
	v := fieldsOf(form)
	v.Set("reason", "tested")
	_, location, _ := post(t, c, "/discard", v)
	body := ask(t, c, "GET", location, nil).Body.String()
	if !strings.Contains(body, "1 message discarded.") {
		t.Errorf("GET %s: got %s, want \"1 message discarded.\"", location, body)
	}
	if v := fieldsOf(body); v.Has("id") {
		t.Errorf("page offers to undo the discard of %v", v["id"])
	}
}

// For many messages, the first form shows only a lower bound of their number. When the form is submitted, the console
// counts the messages and shows the form again. The second form acts on at most the displayed number of messages.
func TestActionsCountMessagesBeforeConfirmation(t *testing.T) {
	const many = 5100 // more than the first form counts
	for _, act := range []struct{ form, path, field, value string }{
		{"/discard", "/discard", "reason", "tested"}, {"/replays/new", "/replays", "rate", "7"}, {"/restore", "/restore", "", "stock"},
	} {
		t.Run(act.path, func(t *testing.T) {
			a := newArchive(t, store.Config{})
			more := func(n int) {
				t.Helper()
				all := make([]failed.Message, n)
				for i := range all {
					all[i] = failed.Message{FailedQueue: "orders.failed", Error: "no stock", LastFailed: noon}
				}
				ids, err := a.Add(t.Context(), all)
				if err == nil && act.path == "/restore" {
					_, err = a.Discard(t.Context(), failed.Filter{IDs: ids}, "tested", "test")
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			more(many)
			c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
			body := ask(t, c, "GET", act.form+"?text=stock", nil).Body.String()
			v := fieldsOf(body)
			if v.Has("at_most") || !strings.Contains(body, " at least 5,000 messages</h1>") || !strings.Contains(body, "Count messages</button>") {
				t.Errorf("form: got %s, want \" at least 5,000 messages</h1>\", \"Count messages</button>\"", body)
			}
			left := func(want int64) {
				t.Helper()
				state := failed.Failed
				if act.path == "/restore" {
					state = failed.Discarded
				}
				if n, err := a.CountState(t.Context(), failed.Filter{}, state); err != nil || n != want {
					t.Errorf("remaining messages: got %d, want %d: %v", n, want, err)
				}
			}
			if act.field != "" {
				v.Set(act.field, act.value)
			}
			more(1)
			status, _, counted := post(t, c, act.path, v)
			v = fieldsOf(counted)
			if status != http.StatusOK || v.Get("at_most") != "5100" || !strings.Contains(counted, `value="`+act.value+`"`) {
				t.Errorf("counted form: got status %d, fields %v, want 5100 messages: %s", status, v, counted)
			}
			left(many + 1)
			if act.field != "" {
				v.Set(act.field, act.value)
			}
			if status, _, body := post(t, c, act.path, v); status != http.StatusSeeOther {
				t.Errorf("confirmed form: got status %d, want 303; body %s", status, body)
			}
			left(1)
		})
	}
}

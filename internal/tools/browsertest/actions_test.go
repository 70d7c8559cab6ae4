package browsertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/topology"
)

// testConsole is a console for an archive without workers, so that only actions on pages change the archive. All
// archives that a browser displays share one server, because the browser caches the assets of the pages.
type testConsole struct {
	url     string
	console atomic.Pointer[console.Console]
	archive *store.Archive
	db      *sql.DB
}

type noReplayer struct{}

func (noReplayer) Wake() {}

func openArchive(t *testing.T, path string) (*store.Archive, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	a, err := store.Open(t.Context(), db, store.Config{Dialect: store.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	return a, db
}

// newTestConsole serves the console of a copy of an archive.
func newTestConsole(t *testing.T, archive []byte) *testConsole {
	t.Helper()
	d := &testConsole{}
	d.reset(t, archive)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.console.Load().ServeHTTP(w, r) }))
	t.Cleanup(func() {
		server.CloseClientConnections() // pages hold a connection for live updates
		server.Close()
		d.db.Close()
	})
	d.url = server.URL
	return d
}

// reset replaces the archive with a new copy.
func (d *testConsole) reset(t *testing.T, archive []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "failed.db")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	before := d.db
	d.archive, d.db = openArchive(t, path)
	c, err := console.New(console.Config{Archive: d.archive, Replayer: noReplayer{}})
	if err != nil {
		t.Fatal(err)
	}
	d.console.Store(c)
	if before != nil {
		before.Close()
	}
}

// threeGroups returns the file of an archive with three error groups in two queues. The archive contains messages in
// all states, an edited message, and a running and a finished replay.
func threeGroups(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "failed.db")
	a, db := openArchive(t, path)
	ctx, now := t.Context(), time.Now().Add(-time.Hour)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	groups := []struct {
		queue, error string
		n            int
	}{{"orders", "card declined & lost", 10}, {"orders", "no stock", 5}, {"mails", "mailbox full", 6}}
	for i, g := range groups {
		for n := range g.n {
			now = now.Add(time.Second)
			_, err := a.Add(ctx, []failed.Message{{
				Queue: g.queue, FailedQueue: g.queue + ".failed", Error: g.error, Attempts: i + 1, FirstFailed: now, LastFailed: now,
				Content: failed.Content{
					Body: fmt.Appendf(nil, `{"n":%d}`, n), Headers: topology.Table{"tenant": []string{"north", "south"}[n%2]},
					Properties: failed.Properties{ContentType: "application/json"},
				},
			}})
			must(err)
		}
	}
	for i := range groups {
		list, _, err := a.List(ctx, failed.Filter{Group: failed.GroupID(i + 1)}, store.Page{})
		must(err)
		_, err = a.Discard(ctx, failed.Filter{IDs: []failed.ID{list[0].ID}}, "prepared", "test")
		must(err)
	}
	_, err := a.Discard(ctx, failed.Filter{IDs: []failed.ID{1}}, "prepared", "test")
	must(err)
	// The first replay finishes with three failed publications. One of these messages is discarded later. The second
	// replay is running.
	r, err := a.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{IDs: []failed.ID{2, 11, 12, 17}}}, "test")
	must(err)
	must(testhook.Sent(ctx, a, int64(r.ID), 2))
	for _, id := range []int64{11, 12, 17} {
		must(testhook.Refused(ctx, a, int64(r.ID), id, "too large"))
	}
	must(a.EndReplay(ctx, r.ID, failed.ReplayDone, "", "test"))
	_, err = a.Discard(ctx, failed.Filter{IDs: []failed.ID{12}}, "prepared", "test")
	must(err)
	_, err = a.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{IDs: []failed.ID{3, 13}}}, "test")
	must(err)
	must(a.Edit(ctx, 4, 0, failed.Content{Body: []byte(`{"n":"edited"}`)}, "test"))
	must(db.Close())
	archive, err := os.ReadFile(path)
	must(err)
	return archive
}

// rows returns the properties of each message that an action can change, by message ID.
func rows(t *testing.T, a *store.Archive) map[failed.ID]string {
	t.Helper()
	all := map[failed.ID]string{}
	for m, err := range a.Each(t.Context(), failed.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all[m.ID] = string(m.State)
		if m.Erased {
			all[m.ID] += " erased"
		}
		if m.Edited != nil {
			all[m.ID] += " edited " + string(m.Edited.Body)
		}
	}
	return all
}

// changed returns the IDs of the messages that differ between before and after.
func changed(before, after map[failed.ID]string) []failed.ID {
	var ids []failed.ID
	for _, id := range slices.Sorted(maps.Keys(after)) {
		if before[id] != after[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// action is a button or link that changes messages, or opens a page that changes them.
type action struct {
	Label  string
	Target string // path of the next page
	Picked bool   // applies to the selected messages
}

// findActions is a JavaScript expression for the elements of the actions on a page.
const findActions = `[...document.querySelectorAll("main form[method=post] button, main a")]
	.filter(e => e.tagName === "BUTTON" ? e.type === "submit" && !e.closest("noscript") : /^\/(discard|erase|restore|replays\/new)$|\/edit$/.test(e.pathname))`

// actionsOf returns the actions on the open page.
func actionsOf(t *testing.T, b *Browser) []action {
	t.Helper()
	return eval[[]action](t, b, findActions+`.map(e => ({
		Label: e.innerText.trim() || e.textContent.trim(), Target: e.tagName === "A" ? e.pathname : new URL(e.hasAttribute("formaction") ? e.formAction : e.form.action).pathname,
		Picked: !!e.closest("[data-picked]") }))`)
}

// ids evaluates a JavaScript expression that returns message IDs.
func ids(t *testing.T, b *Browser, script string) []failed.ID {
	t.Helper()
	all := eval[[]int64](t, b, script)
	out := make([]failed.ID, len(all))
	for i, id := range all {
		out[i] = failed.ID(id)
	}
	slices.Sort(out)
	return out
}

var digits = regexp.MustCompile(`[0-9]+`)

// kind returns the path of an action with its numbers replaced by N.
func kind(path string) string { return digits.ReplaceAllString(path, "N") }

// press presses the button or link of an action and waits for the next page.
func press(t *testing.T, b *Browser, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.Tab, timeout)
	defer cancel()
	step := func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Evaluate[bool](script+".click() || true")(ctx, target)
		return chromedp.Void{}, err
	}
	if _, err := chromedp.RunResponse(ctx, step); err != nil {
		t.Fatalf("script %s failed: %v", script, err)
	}
}

// headingNumber returns the number of messages in the heading of the open page.
func headingNumber(t *testing.T, b *Browser) int {
	t.Helper()
	heading := eval[string](t, b, `document.querySelector("h1").innerText`)
	n, err := strconv.Atoi(digits.FindString(heading))
	if err != nil {
		t.Fatalf("heading %q contains no number", heading)
	}
	return n
}

// Each action on each page changes exactly the messages that the page displays or counts.
func TestActionsChangeDisplayedMessages(t *testing.T) {
	needsBrowser(t)
	t.Parallel()
	archive := threeGroups(t)
	pressed := map[string]bool{}
	for name, pages := range map[string][]string{
		"groups": {"/groups/2", "/groups/3", "/groups/2?state=discarded"},
		"searches": {
			"/messages?queue=orders&error=" + url.QueryEscape("declined & lost"), "/messages?header=tenant:south",
			"/messages?state=discarded&queue=orders",
		},
		"messages": {"/messages/5", "/messages/4", "/messages/1", "/messages/5/edit", "/replays/1", "/replays/2"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTestConsole(t, archive) // before the browser, so that it is closed after the browser
			b := openBrowser(t)
			for _, page := range pages {
				tryPage(t, b, d, archive, page, pressed)
			}
		})
	}
	for target, page := range crawl(t, newTestConsole(t, archive).url) {
		if !pressed[target] {
			t.Errorf("action with target %s on page %s was not tested", target, page)
		}
	}
}

// tryPage presses each action on a page, each time with an unmodified archive.
func tryPage(t *testing.T, b *Browser, d *testConsole, archive []byte, page string, pressed map[string]bool) {
	t.Helper()
	for i, n := 0, 1; i < n; i++ {
		d.reset(t, archive)
		do(t, b, chromedp.Navigate(d.url+page), chromedp.WaitVisible(chromedp.CSS("main")))
		actions := actionsOf(t, b)
		if n = len(actions); n == 0 {
			t.Errorf("page %s has no actions", page)
			return
		}
		pressed[kind(actions[i].Target)] = true
		tryAction(t, b, d, page, i, actions[i])
	}
}

// tryAction presses an action on the open page, confirms it, and compares the archive.
func tryAction(t *testing.T, b *Browser, d *testConsole, page string, i int, a action) {
	t.Helper()
	before := rows(t, d.archive)
	want, state := expected(t, b, d, a)
	press(t, b, fmt.Sprintf("%s[%d]", findActions, i))
	if strings.HasSuffix(a.Target, "/edit") && a.Label == "Edit" {
		if got := changed(before, rows(t, d.archive)); got != nil {
			t.Errorf("%s %q: changed %v", page, a.Label, got)
		}
		return
	}
	if eval[bool](t, b, `!!document.querySelector("form input[name=at_most]")`) {
		if n := headingNumber(t, b); n != len(want) {
			t.Errorf("%s %q: page shows %d messages, want %d", page, a.Label, n, len(want))
		}
		if words := eval[string](t, b, `document.querySelector(".sub").innerText`); strings.Contains(words, "All messages") {
			t.Errorf("%s %q: page describes %q", page, a.Label, words)
		}
		eval[bool](t, b, `(r => { if (r) r.value = "tested"; return true; })(document.getElementById("f-reason"))`)
		eval[bool](t, b, fmt.Sprintf(`(r => { if (r) r.value = "%d"; return true; })(document.getElementById("f-count"))`, len(want)))
		press(t, b, `document.querySelector("main form button")`)
	}
	after := rows(t, d.archive)
	if got := changed(before, after); !slices.Equal(got, want) {
		t.Errorf("%s %q: changed %v, want %v", page, a.Label, got, want)
	}
	for _, id := range want {
		if after[id] != state && !strings.HasPrefix(after[id], state+" edited") && (state != "erased" || !strings.HasSuffix(after[id], state)) {
			t.Errorf("%s %q: got message %d in state %s, want %s", page, a.Label, id, after[id], state)
		}
	}
	if !eval[bool](t, b, `[...document.querySelectorAll("button")].some(e => e.textContent === "Undo")`) {
		return
	}
	press(t, b, `[...document.querySelectorAll("button")].find(e => e.textContent === "Undo")`)
	if got := changed(before, rows(t, d.archive)); got != nil {
		t.Errorf("undo of %s %q: %v differ from before", page, a.Label, got)
	}
}

// expected returns the messages that an action on the open page must change, and their state after the action.
func expected(t *testing.T, b *Browser, d *testConsole, a action) (want []failed.ID, state string) {
	t.Helper()
	const shown = `[...document.querySelectorAll("#rows > tr[id^=m]")].map(r => +r.id.slice(1))`
	state = map[string]string{"/discard": "discarded", "/restore": "failed", "/erase": "discarded erased", "/replays": "replaying"}[strings.TrimSuffix(strings.TrimSuffix(a.Target, "/new"), "/picked")]
	ofPage := digits.FindString(eval[string](t, b, "location.pathname"))
	one, err := strconv.ParseInt(ofPage, 10, 64)
	if err != nil {
		one = 0
	}
	switch label := a.Label; {
	case a.Picked:
		eval[bool](t, b, `[...document.querySelectorAll("#rows input[name=id]")].slice(0, 2).every(e => { e.click(); return e.checked; })`)
		return ids(t, b, shown+".slice(0, 2)"), state
	case a.Target == "/erase" && strings.HasSuffix(label, "all…"):
		// Personal data is erased in all states, also in states that the page does not list, except while a replay sends it.
		text := mustGet(t, func(path string) (string, error) { return getPage(d.url, path) }, "/messages"+eval[string](t, b, `document.querySelector("main a[href*='/erase?']").search`))
		states := rows(t, d.archive)
		for _, row := range listed.FindAllString(text, -1) {
			id, _ := strconv.ParseInt(digits.FindString(row), 10, 64)
			if states[failed.ID(id)] != "replaying" {
				want = append(want, failed.ID(id))
			}
		}
		slices.Sort(want)
		return want, "erased"
	case strings.HasSuffix(label, "all…"):
		return ids(t, b, shown), state
	case strings.HasSuffix(label, "again…"):
		return ids(t, b, `[...document.querySelectorAll("[aria-labelledby=h-refused] tbody tr")].filter(r => r.innerText.includes("failed")).map(r => +r.querySelector("a.row").innerText)`), state
	case label == "Cancel replay":
		list, _, err := d.archive.List(t.Context(), failed.Filter{States: []failed.State{failed.Replaying}}, store.Page{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.ReplayedBy == failed.ReplayID(one) {
				want = append(want, m.ID)
			}
		}
		slices.Sort(want)
		return want, "failed"
	case label == "Revert edit":
		return []failed.ID{failed.ID(one)}, "failed"
	case label == "Save", label == "Save and replay":
		eval[bool](t, b, `document.getElementById("f-body").value = '{"n":"other"}'; true`)
		return []failed.ID{failed.ID(one)}, map[string]string{"Save": "failed", "Save and replay": "replaying"}[label]
	case label == "Mute", label == "Mute for 24 h":
		return nil, "" // affects only notifications
	case slices.Contains([]string{"Discard…", "Erase…", "Replay", "Replay with options…", "Restore", "Edit"}, label):
		return []failed.ID{failed.ID(one)}, state
	}
	t.Fatalf("test does not support the action %q", a.Label)
	return nil, ""
}

var (
	linked = regexp.MustCompile(`(?:href|hx-get)="(/[^"]*)"`)
	posted = regexp.MustCompile(`(?:<form[^>]*method="post"[^>]* action|formaction)="(/[^"]*)"`)
	listed = regexp.MustCompile(`<tr id="m[0-9]+">`)
	number = regexp.MustCompile(`<h1>\w+ ([0-9]+) messages?</h1>`)
)

// crawl follows all links of a console and fails on a broken link. It returns the paths of actions, without numbers, each with a
// page that links to the path.
func crawl(t *testing.T, base string) map[string]string {
	t.Helper()
	targets := map[string]string{}
	seen, todo := map[string]bool{"/": true}, []string{"/"}
	get := func(path string) (string, error) { return getPage(base, path) }
	for len(todo) > 0 {
		page := todo[0]
		todo = todo[1:]
		text, err := get(page)
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}
		for _, m := range posted.FindAllStringSubmatch(text, -1) {
			if path := m[1]; path != "/logout" {
				targets[kind(path)] = page
			}
		}
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			link := html.UnescapeString(m[1])
			path, _, _ := strings.Cut(link, "?")
			if path == "/discard" || path == "/erase" || path == "/restore" || path == "/replays/new" {
				targets[path] = page
				// A confirmation must show the number of messages that the page lists, except that erasing includes all states.
				n := number.FindStringSubmatch(mustGet(t, get, link))
				if rows := len(listed.FindAllString(text, -1)); rows > 0 && path != "/erase" && (n == nil || n[1] != strconv.Itoa(rows)) && !strings.HasPrefix(page, "/groups/") {
					t.Errorf("page %s lists %d messages, but its link %s shows %v", page, rows, link, n)
				}
			}
			if !seen[link] && len(seen) < 1000 {
				seen[link] = true
				todo = append(todo, link)
			}
		}
	}
	if len(seen) < 100 || len(seen) >= 1000 {
		t.Errorf("found only %d pages, want at least 100", len(seen))
	}
	return targets
}

func getPage(base, path string) (string, error) {
	answer, err := http.Get(base + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("status %s: %.2000s", answer.Status, text))
	}
	return string(text), err
}

func mustGet(t *testing.T, get func(string) (string, error), path string) string {
	t.Helper()
	text, err := get(path)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return text
}

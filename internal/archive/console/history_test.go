package console

import (
	"database/sql"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
)

// newPast returns a history of the 50 minutes before noon. It contains an outage of the queue orders from 11:40, a mark
// two minutes before the outage, and a gap from 11:20 to 11:25. Messages in the queue mails never fail.
func newPast(t testing.TB) *history.History {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "history.db")+"?_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	now := noon.Add(-50 * time.Minute)
	h, err := history.Open(t.Context(), db, history.Config{Dialect: store.SQLite, Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	orders := protocol.WorkerStatus{ID: "a", Queue: "orders", Started: now, Sent: now}
	mails := protocol.WorkerStatus{ID: "b", Queue: "mails", Started: now, Sent: now}
	count := func(s *protocol.WorkerStatus, succeeded, failures uint64, took time.Duration) {
		s.Counts.Succeeded += succeeded
		s.Counts.Failed += failures
		s.Took.Buckets[protocol.TookBucket(took)] += succeeded + failures
	}
	for ; !now.After(noon); now = now.Add(15 * time.Second) {
		h.Observe(orders)
		h.Observe(mails)
		if gap := now.After(noon.Add(-40*time.Minute)) && now.Before(noon.Add(-35*time.Minute)); !gap {
			if err := h.Record(t.Context(), history.Sources{}); err != nil {
				t.Fatal(err)
			}
		}
		if down := !now.Before(noon.Add(-20 * time.Minute)); down {
			count(&orders, 3, 12, 900*time.Millisecond)
		} else {
			count(&orders, 10, 0, 40*time.Millisecond)
		}
		count(&mails, 1, 0, 3*time.Millisecond)
		orders.Sent, mails.Sent = now.Add(15*time.Second), now.Add(15*time.Second)
	}
	now = noon
	if _, err := h.AddMark(t.Context(), history.Mark{At: noon.Add(-22 * time.Minute), Text: "v2.4 <b>", By: "ann"}); err != nil {
		t.Fatal(err)
	}
	return h
}

func atNoon() time.Time { return noon }

func TestHistoryAPI(t *testing.T) {
	a := newArchive(t, store.Config{})
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, History: newPast(t), Clock: atNoon}))
	one := get[api.History](t, ask(t, d, "GET", "/api/v1/history?queue=orders&range=1h", nil))
	if one.Range != "1h" || time.Duration(one.Step) != time.Minute || !one.Now.Equal(noon) || len(one.Queues) != 1 || len(one.Marks) != 1 {
		t.Fatalf("history of one queue: got %+v, want Range 1h, len(Queues) 1, len(Marks) 1", one)
	}
	q := one.Queues[0]
	if q.Queue != "orders" || len(q.Points) != 60 || q.Total.Succeeded != 30*4*10+20*4*3 || q.Total.Failures != 20*4*12 || q.Total.P99 != 1024 || q.Total.P50 != 64 {
		t.Errorf("got %d points, want 60, total %+v", len(q.Points), q.Total)
	}
	if len(q.Rises) != 1 || q.Rises[0].Text != "Failures rose from 0/min to 48/min at 11:40 UTC, 2 min after the mark “v2.4 <b>”." || q.Rises[0].Mark != 1 {
		t.Errorf("rises: got %+v, want 1 from 0/min to 48/min at 11:40, after mark 1", q.Rises)
	}
	if before, gap := q.Points[12], q.Points[22]; !before.Recorded || gap.Recorded || gap.Succeeded != 40 {
		t.Errorf("points: got %+v before the gap, %+v in the gap, want Succeeded 40", before, gap)
	}
	all := get[api.History](t, ask(t, d, "GET", "/api/v1/history", nil))
	if len(all.Queues) != 2 || all.Queues[0].Queue != "mails" || all.Range != "24h" {
		t.Errorf("got %d queues over %s, want 2 over 24h", len(all.Queues), all.Range)
	}
	if none := get[api.History](t, ask(t, d, "GET", "/api/v1/history?queue=nothing", nil)); none.Queues[0].Queue != "nothing" || none.Queues[0].Total.Succeeded != 0 {
		t.Errorf("total of an unknown queue: got %+v, want Succeeded 0", none.Queues[0].Total)
	}
	refused(t, ask(t, d, "GET", "/api/v1/history?range=1y", nil), http.StatusBadRequest, "use 1h, 24h, 7d")
	refused(t, ask(t, d, "GET", "/api/v1/history?queue=base64:%25", nil), http.StatusBadRequest, "base64")
}

func TestMarksAPI(t *testing.T) {
	a := newArchive(t, store.Config{})
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, History: newPast(t), Clock: atNoon}))
	m := get[history.Mark](t, ask(t, d, "POST", "/api/v1/marks", api.NewMark{Text: "v2.5", Queue: "orders", Time: noon.Add(-time.Minute)}))
	if m.ID != 2 || m.Text != "v2.5" || m.Queue != "orders" || !m.At.Equal(noon.Add(-time.Minute)) || m.By == "" {
		t.Errorf("new mark: got %+v, want mark 2 with text v2.5 for orders", m)
	}
	if all := get[api.Marks](t, ask(t, d, "GET", "/api/v1/marks", nil)).Marks; len(all) != 2 || all[0] != m {
		t.Errorf("marks: got %+v, want 2, the first %+v", all, m)
	}
	if gone := get[history.Mark](t, ask(t, d, "DELETE", "/api/v1/marks/2", nil)); gone != m {
		t.Errorf("deleted mark: got %+v, want %+v", gone, m)
	}
	refused(t, ask(t, d, "DELETE", "/api/v1/marks/2", nil), http.StatusNotFound, "mark 2 not found")
	refused(t, ask(t, d, "POST", "/api/v1/marks", api.NewMark{}), http.StatusBadRequest, "text must not be empty")
	refused(t, ask(t, d, "POST", "/api/v1/marks", api.NewMark{Text: "x", Time: noon.Add(time.Hour)}), http.StatusBadRequest, "must not be in the future")
	acts, _, err := a.Acts(t.Context(), store.ActFilter{}, store.Page{})
	if err != nil || len(acts) != 2 || acts[1].Verb != "mark" || acts[1].Subject != "mark/2" || acts[1].Details["text"] != "v2.5" || acts[0].Verb != "remove mark" {
		t.Errorf("audit log: got %+v, %v", acts, err)
	}
}

func TestHistoryPage(t *testing.T) {
	c := newConsole(t, Config{History: newPast(t), Clock: atNoon, Prefix: "/reprise"})
	page := func(path string) string {
		t.Helper()
		w := ask(t, c, "GET", "/reprise"+path, nil)
		if w.Code != http.StatusOK {
			t.Errorf("GET %s: got status %d, want 200", path, w.Code)
		}
		return w.Body.String()
	}
	one := page("/history?queue=orders&range=1h")
	for _, want := range []string{
		"Failures rose from 0/min to 48/min at 11:40 UTC, 2 min after the mark “v2.4 &lt;b&gt;”.",
		"11:45 UTC\n12 succeeded (12/min)\n48 failures (48/min)\np50 1 s, p95 1 s, p99 1 s", "11:22 UTC (not recorded)", "v2.4 &lt;b&gt;</text>",
		`href="/reprise/history?queue=orders&amp;range=7d"`, `aria-labelledby="t-failures-wide d-failures-wide"`, "11:01 UTC to 12:00 UTC: 960, at most 48/min.",
		"Not recorded: 2026-03-01 11:01:00 – 2026-03-01 11:10:00; 2026-03-01 11:21:00 – 2026-03-01 11:25:00",
		`<th scope="row" class="tight">2026-03-01 11:45</th><td class="num">48</td><td class="num">12</td>`,
	} {
		if !strings.Contains(one, want) {
			t.Errorf("page does not contain %q", want)
		}
	}
	if strings.Contains(one, "NaN") || strings.Contains(one, "Inf") || strings.Contains(one, "v2.4 <b>") {
		t.Error("page contains an invalid number or unescaped text")
	}
	for path, want := range map[string]string{
		"/history":                         "Failures rose from",
		"/history?range=7d&queue=mails":    "Sun 1 Mar",
		"/history?queue=nothing":           "<h2>No messages</h2>",
		"/history?queue=base64:%2Fw%3D%3D": "\\xff",
	} {
		if body := page(path); !strings.Contains(body, want) {
			t.Errorf("%s does not contain %q", path, want)
		}
	}
	if w := ask(t, c, "GET", "/reprise/history?range=1y", nil); w.Code != http.StatusBadRequest {
		t.Errorf("invalid range: got status %d, want 400", w.Code)
	}
	if body := ask(t, newConsole(t, Config{}), "GET", "/history", nil).Body.String(); !strings.Contains(body, "<h2>No history</h2>") {
		t.Error("page without history: text is missing")
	}
}

func TestMarksPage(t *testing.T) {
	list, secrets := tokens()
	a, past := newArchive(t, store.Config{}), newPast(t)
	c := newConsole(t, Config{Archive: a, History: past, Clock: atNoon, Tokens: list})
	operator := bearer(secrets[Operate])
	page := ask(t, c, "GET", "/history?queue=orders&range=1h", nil, operator).Body.String()
	if !strings.Contains(page, `action="/history/marks"`) || fieldsOf(page).Encode() != "queue=orders&range=1h" {
		t.Errorf("page does not contain the form: %v", fieldsOf(page))
	}
	if strings.Contains(ask(t, c, "GET", "/history?queue=orders", nil, bearer(secrets[View])).Body.String(), "/history/marks") {
		t.Error("the page shows a viewer the form")
	}
	for _, tc := range []struct {
		field, value, wrong, want string
	}{
		{"text", " ", "text", "Text must not be empty."},
		{"at", "2026-03-01T12:30", "at", "Time must not be in the future"},
		{"at", "yesterday", "at", "Enter a time such as 2026-03-01T12:00."},
	} {
		v := url.Values{"queue": {"orders"}, "range": {"1h"}, "text": {"v2.5"}, "only": {"yes"}}
		v.Set(tc.field, tc.value)
		status, _, body := post(t, c, "/history/marks", v, operator)
		_, after, _ := strings.Cut(body, `id="wrong-`+tc.wrong+`"`)
		if status != http.StatusUnprocessableEntity || !strings.Contains(after[:min(len(after), 800)], tc.want) || !strings.Contains(body, `value="yes" checked`) {
			t.Errorf("%+v: got status %d, want 422; page %.800s", tc, status, after)
		}
	}
	for _, v := range []url.Values{
		{"queue": {"orders"}, "range": {"1h"}, "text": {"v2.5"}, "at": {"2026-03-01T11:30"}, "only": {"yes"}},
		{"range": {"1h"}, "text": {"v2.6"}, "at": {""}},
	} {
		if status, location, body := post(t, c, "/history/marks", v, operator); status != http.StatusSeeOther || !strings.HasPrefix(location, "/history?") || !strings.HasSuffix(location, "range=1h") {
			t.Errorf("got status %d, want 303; location %s, body %s", status, location, body)
		}
	}
	marks, err := past.Marks(t.Context(), noon.Add(-31*time.Minute))
	if err != nil || len(marks) != 3 || marks[0].Text != "v2.6" || !marks[0].At.Equal(noon) || marks[0].Queue != "" ||
		marks[2].Queue != "orders" || !marks[2].At.Equal(noon.Add(-30*time.Minute)) || marks[2].By != "operate-er" {
		t.Errorf("marks: got %+v, want len 3, [0].Text v2.6, [0].Queue \"\", [2].Queue orders, [2].By operate-er; error %v", marks, err)
	}
	if acts, _, err := a.Acts(t.Context(), store.ActFilter{}, store.Page{}); err != nil || len(acts) != 2 || acts[0].Verb != "mark" {
		t.Errorf("audit log: got %+v, want len 2, [0].Verb mark; error %v", acts, err)
	}
}

func TestOverviewShowsTrends(t *testing.T) {
	a := newArchive(t, store.Config{Clock: atNoon})
	add(t, a, nil)
	body := ask(t, newConsole(t, Config{Archive: a, History: newPast(t), Clock: atNoon}), "GET", "/", nil).Body.String()
	if !strings.Contains(body, `href="/history?queue=orders&amp;range=24h" aria-label="History of orders: 960 failures in the last 24 hours"`) {
		t.Error("overview does not contain the trend")
	}
}

func TestAPIWithoutHistory(t *testing.T) {
	c := newConsole(t, Config{})
	for _, line := range [][2]string{{"GET", "history"}, {"GET", "marks"}, {"POST", "marks"}, {"DELETE", "marks/1"}} {
		var body any
		if line[0] == "POST" {
			body = api.NewMark{Text: "x"}
		}
		refused(t, ask(t, c, line[0], "/api/v1/"+line[1], body), http.StatusServiceUnavailable, "history not found")
	}
}

package console

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/protocol"
)

// fakeFleet is a Fleet that records the commands.
type fakeFleet struct {
	workers  []fleet.Worker
	commands []protocol.Command
	keys     []reprise.KeyControl
	err      error // result of Err and of Control
}

func (c *fakeFleet) Workers() []fleet.Worker { return c.workers }
func (c *fakeFleet) Err() error              { return c.err }
func (c *fakeFleet) Control(_ context.Context, command protocol.Command) error {
	c.commands = append(c.commands, command)
	return c.err
}

func (c *fakeFleet) ControlKey(_ context.Context, k reprise.KeyControl, _ time.Duration) (effect bool, err error) {
	c.keys = append(c.keys, k)
	return k.Act != reprise.RetryFirst, c.err
}

func newFakeFleet() *fakeFleet {
	now := time.Now()
	worker := func(id, queue, state string, pauses ...protocol.Pause) fleet.Worker {
		return fleet.Worker{Heard: now, WorkerStatus: protocol.WorkerStatus{
			ID: id, Queue: queue, State: state, Pauses: pauses, Host: "web-1", PID: 4711, Program: "v1.2.3", Client: "reprise up",
			Started: now.Add(-time.Hour), Sent: now, Concurrency: 4, Counts: protocol.Counts{Succeeded: 1234},
		}}
	}
	busy := worker("aaaa", "orders", protocol.WorkerConsuming)
	busy.Running, busy.Handling = 3, []protocol.Handling{{MessageID: "order-17", Attempt: 2, Since: now.Add(-3 * time.Second), Progress: &protocol.Progress{Fraction: 0.57, Text: "page <4>", At: now.Add(-2 * time.Second)}}}
	silent := worker("bbbb", "orders", protocol.WorkerConsuming)
	silent.Silent = true
	return &fakeFleet{workers: []fleet.Worker{
		worker("cccc", "mails", protocol.WorkerPaused, protocol.Pause{Of: protocol.PauseOfQueue, By: "ann", Reason: "closed <today>", At: now}),
		busy, silent,
		worker("dddd", "orders", protocol.WorkerPaused, protocol.Pause{Of: protocol.PauseOfWorker, By: "bob", At: now}),
	}}
}

func TestWorkersAPI(t *testing.T) {
	crew := newFakeFleet()
	a := newArchive(t, store.Config{})
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Fleet: crew}))
	all := get[api.Workers](t, ask(t, d, "GET", "/api/v1/workers", nil))
	if len(all.Workers) != 4 || all.Problem != "" {
		t.Fatalf("workers: got %+v, want len(Workers) 4, Problem \"\"", all)
	}
	if w := all.Workers[1]; w.State != "consuming" || w.Running != 3 || w.Handling[0].MessageID != "order-17" || time.Duration(w.Handling[0].For) < 3*time.Second {
		t.Errorf("worker: got %+v, want State consuming, Running 3, Handling[0].MessageID order-17", w)
	}
	if p := all.Workers[1].Handling[0].Progress; p == nil || p.Percent() != 57 || p.Text != "page <4>" || time.Duration(p.Ago) != 2*time.Second {
		t.Errorf("progress: got %+v, want 57%%, 2 s ago", p)
	}
	if all.Workers[2].State != "silent" || all.Workers[0].Pauses[0].By != "ann" {
		t.Errorf("workers: got %+v, want [2].State silent, [0].Pauses[0].By ann", all.Workers)
	}

	for _, c := range []struct {
		path   string
		body   any
		status int
	}{
		{"pause", api.Pause{Queue: "orders", For: api.Duration(10 * time.Minute), Reason: "down"}, 200},
		{"pause", api.Pause{Queue: "orders", Worker: "aaaa"}, 200},
		{"resume", api.Resume{Queue: "mails"}, 200},
		{"resume", api.Resume{Queue: "nobody works here"}, 200},
		{"pause", api.Pause{}, 400},
		{"pause", api.Pause{Queue: "orders", For: api.Duration(-time.Second)}, 400},
		{"pause", api.Pause{Queue: "orders", Reason: strings.Repeat("x", 501)}, 400},
		{"pause", api.Pause{Queue: "ordres"}, 404},
		{"pause", api.Pause{Queue: "mails", Worker: "aaaa"}, 404},
		{"resume", api.Resume{Queue: "mails", Worker: "gone"}, 404},
	} {
		if w := ask(t, d, "POST", "/api/v1/workers/"+c.path, c.body); w.Code != c.status {
			t.Errorf("%s %+v: status %d, want %d: %s", c.path, c.body, w.Code, c.status, w.Body)
		}
	}
	if len(crew.commands) != 4 {
		t.Fatalf("commands: got %+v, want len 4", crew.commands)
	}
	first := crew.commands[0]
	if left := time.Until(first.Pause.Until); first.Do != protocol.DoPause || first.Queue != "orders" || first.Worker != "" || first.Pause.Reason != "down" || first.Pause.By == "" ||
		left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("first command: got %+v", first)
	}
	if crew.commands[1].Worker != "aaaa" || !crew.commands[1].Pause.Until.IsZero() {
		t.Errorf("second command: got %+v, want Worker aaaa", crew.commands[1])
	}
	acts, _, err := a.Acts(t.Context(), store.ActFilter{}, store.Page{})
	if err != nil || len(acts) != 4 || acts[3].Verb != "pause" || acts[3].Subject != "queue/orders" || acts[3].Details["reason"] != "down" || acts[2].Subject != "worker/aaaa" {
		t.Errorf("audit log: got %+v, %v", acts, err)
	}
}

// withKeys returns a fleet with two owners of the partitions of payments.
func withKeys() *fakeFleet {
	crew := newFakeFleet()
	since := time.Now().Add(-2 * time.Hour).Round(time.Millisecond)
	for i, keys := range []protocol.Keys{
		{Partitions: 8, Owned: 4, Blocked: 12, Behind: 40, Oldest: []protocol.BlockedKey{
			{Key: "customer <17>", Since: since, Next: time.Now().Add(time.Hour), Attempts: 3, Behind: 4, Error: "closed <today>"},
			{Key: strings.Repeat("x", 160), Inexact: true, Since: since, Attempts: 1, Behind: 1},
		}},
		{Partitions: 8, Owned: 3, Blocked: 1, Oldest: []protocol.BlockedKey{{Since: since.Add(-time.Hour), Attempts: 1}}},
	} {
		w := crew.workers[1]
		w.ID, w.Queue, w.Keys, w.Running, w.Handling = fmt.Sprint("keys", i), "payments", &keys, 0, nil
		crew.workers = append(crew.workers, w)
	}
	return crew
}

func TestKeysAPI(t *testing.T) {
	crew := withKeys()
	a := newArchive(t, store.Config{})
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Fleet: crew}))
	since := crew.workers[4].Keys.Oldest[0].Since
	long := strings.Repeat("x", 170)
	for _, c := range []struct {
		query  string
		act    api.KeyAct
		status int
		want   api.KeyDone
	}{
		{"?dry_run=true", api.KeyAct{Queue: "payments", Key: "customer <17>", Do: reprise.ParkAll}, 200, api.KeyDone{Messages: 5, DryRun: true}},
		{"", api.KeyAct{Queue: "payments", Key: "customer <17>", Do: reprise.ParkAll}, 400, api.KeyDone{}},
		{"", api.KeyAct{Queue: "payments", Key: "customer <17>", Do: reprise.ParkAll, AtMost: 4, Reason: "closed account"}, 200, api.KeyDone{Messages: 4, Effect: true}},
		{"", api.KeyAct{Queue: "payments", Key: "customer <17>", Do: reprise.RetryFirst, Since: since}, 200, api.KeyDone{Messages: 1}},
		{"", api.KeyAct{Queue: "payments", Key: "customer <17>", Do: reprise.RetryFirst, Since: since.Add(time.Second)}, 409, api.KeyDone{}},
		{"", api.KeyAct{Queue: "payments", Do: reprise.ParkFirst}, 200, api.KeyDone{Messages: 1, Effect: true}},
		{"", api.KeyAct{Queue: "payments", Key: long, Do: reprise.ParkFirst}, 200, api.KeyDone{Messages: 1, Effect: true}},
		{"", api.KeyAct{Queue: "payments", Key: long[:160], Do: reprise.ParkFirst}, 404, api.KeyDone{}},
		{"", api.KeyAct{Queue: "payments", Key: "nobody", Do: reprise.ParkFirst}, 404, api.KeyDone{}},
		{"", api.KeyAct{Queue: "orders", Key: "customer <17>", Do: reprise.ParkFirst}, 404, api.KeyDone{}},
		{"", api.KeyAct{Queue: "payments", Key: "customer <17>", Do: "discard"}, 400, api.KeyDone{}},
		{"", api.KeyAct{Key: "customer <17>", Do: reprise.ParkFirst}, 400, api.KeyDone{}},
	} {
		w := ask(t, d, "POST", "/api/v1/workers/keys"+c.query, c.act)
		if w.Code != c.status {
			t.Errorf("%+v: status %d, want %d: %s", c.act, w.Code, c.status, w.Body)
		} else if w.Code == 200 {
			if done := get[api.KeyDone](t, w); done != c.want {
				t.Errorf("%+v: got %+v, want %+v", c.act, done, c.want)
			}
		}
	}
	if len(crew.keys) != 4 || crew.keys[0] != (reprise.KeyControl{Queue: "payments", Key: "customer <17>", Act: reprise.ParkAll, Limit: 4, By: crew.keys[0].By}) || crew.keys[0].By == "" {
		t.Errorf("acts: got %+v, want 4", crew.keys)
	}
	acts, _, err := a.Acts(t.Context(), store.ActFilter{}, store.Page{})
	if err != nil || len(acts) != 4 || acts[3].Verb != "park all of key" || acts[3].Subject != "queue/payments" || acts[3].Details["key"] != "customer <17>" || acts[3].Details["reason"] != "closed account" {
		t.Errorf("audit log: got %+v, %v", acts, err)
	}
}

func TestKeysPage(t *testing.T) {
	list, secrets := tokens()
	crew := withKeys()
	c := newConsole(t, Config{Fleet: crew, Tokens: list})
	for role := View; role <= Admin; role++ {
		body := ask(t, c, "GET", "/workers", nil, bearer(secrets[role])).Body.String()
		for _, want := range []string{"13 blocked keys", "40 messages behind", "7 of 8 partitions owned", "customer &lt;17&gt;", "closed &lt;today&gt;", "no key", "and 10 more"} {
			if !strings.Contains(body, want) {
				t.Errorf("page does not contain %q", want)
			}
		}
		for _, action := range []string{"/workers/key?do=park-all&amp;key=customer&#43;%3C17%3E&amp;queue=payments", "/workers/key?do=retry&amp;queue=payments"} {
			if has := strings.Contains(body, action); has != (role >= Operate) {
				t.Errorf("page for %s contains %s: %t, want %t", role, action, has, role >= Operate)
			}
		}
		if strings.Contains(body, "do=retry&amp;key=xxx") || strings.Contains(body, "do=park-all&amp;queue") {
			t.Error("page has a button for an incomplete key, or parks all of one message")
		}
	}
	operate := bearer(secrets[Operate])
	body := ask(t, c, "GET", "/workers/key?queue=payments&key=customer+%3C17%3E&do=park-all", nil, operate).Body.String()
	for _, want := range []string{"Park: 5 messages", "the 4 messages behind it go to the failed queue in order"} {
		if !strings.Contains(body, want) {
			t.Errorf("confirmation does not contain %q: %s", want, body)
		}
	}
	form := url.Values{"queue": {"payments"}, "key": {"customer <17>"}, "do": {"park-all"}, "at_most": {"5"}, "reason": {"closed account"}, "submission": {"a"}}
	_, since, _ := strings.Cut(body, `name="since" value="`)
	since, _, _ = strings.Cut(since, `"`)
	form.Set("since", html.UnescapeString(since))
	status, location, body := post(t, c, "/workers/key", form, operate)
	if status != http.StatusSeeOther || location != "/workers?did=parked&n=5" || len(crew.keys) != 1 || crew.keys[0].Limit != 5 {
		t.Fatalf("park all: got status %d, location %s, acts %+v: %s", status, location, crew.keys, body)
	}
	if body := ask(t, c, "GET", location, nil, operate).Body.String(); !strings.Contains(body, "5 messages of the key parked") {
		t.Error("page does not show the result")
	}
	if status, _, _ := post(t, c, "/workers/key", form, operate); status != http.StatusConflict || len(crew.keys) != 1 {
		t.Errorf("repeated form: got status %d, want 409; acts %+v", status, crew.keys)
	}
	form.Set("submission", "b")
	form.Set("since", time.Now().Format(time.RFC3339Nano))
	if status, _, _ := post(t, c, "/workers/key", form, operate); status != http.StatusConflict || len(crew.keys) != 1 {
		t.Errorf("form of another first message: got status %d, want 409; acts %+v", status, crew.keys)
	}
	if body := ask(t, c, "GET", "/audit", nil, operate).Body.String(); !strings.Contains(body, "park all of key") || !strings.Contains(body, "customer &lt;17&gt;") {
		t.Error("audit log does not show the act")
	}
}

// If the broker refuses a command, the console reports the refusal, and the audit log does not record the command.
func TestPauseRefusedByBroker(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
	}{
		{&reprise.DeclareError{Kind: "queue", Name: "q", Advice: "the user may not configure it"}, http.StatusForbidden},
		{reprise.ErrUnroutable, http.StatusConflict},
		{reprise.ErrDisconnected, http.StatusServiceUnavailable},
		{errors.New("reprise: something else"), http.StatusServiceUnavailable},
	} {
		crew := newFakeFleet()
		crew.err = tc.err
		a := newArchive(t, store.Config{})
		c := newConsole(t, Config{Archive: a, Fleet: crew})
		w := ask(t, c, "POST", "/api/v1/workers/pause", api.Pause{Queue: "orders"})
		if w.Code != tc.status {
			t.Errorf("%v: status %d, want %d: %s", tc.err, w.Code, tc.status, w.Body)
		}
		if acts, _, err := a.Acts(t.Context(), store.ActFilter{}, store.Page{}); err != nil || len(acts) != 0 {
			t.Errorf("audit log: got %+v, want none; error %v", acts, err)
		}
		if all := get[api.Workers](t, ask(t, c, "GET", "/api/v1/workers", nil)); all.Problem == "" {
			t.Errorf("response has no problem for %v", tc.err)
		}
	}
}

func TestWorkersPage(t *testing.T) {
	list, secrets := tokens()
	crew := newFakeFleet()
	c := newConsole(t, Config{Fleet: crew, Tokens: list})
	for role := View; role <= Admin; role++ {
		body := ask(t, c, "GET", "/workers", nil, bearer(secrets[role])).Body.String()
		for _, want := range []string{"order-17", "attempt 2, for 3", "57% page &lt;4&gt;, 2 s ago", "web-1", "v1.2.3", "1,234", "closed &lt;today&gt;", "silent", "and 2 more", "paused by bob"} {
			if !strings.Contains(body, want) {
				t.Errorf("page does not contain %q", want)
			}
		}
		for _, action := range []string{"/workers/pause?queue=orders", "/workers/resume?queue=mails", "/workers/resume?queue=orders&amp;worker=dddd", "/workers/pause?queue=orders&amp;worker=aaaa"} {
			if has := strings.Contains(body, action); has != (role >= Operate) {
				t.Errorf("page for %s contains %s: %t, want %t", role, action, has, role >= Operate)
			}
		}
	}
	operate := bearer(secrets[Operate])
	if body := ask(t, c, "GET", "/workers/pause?queue=orders", nil, operate).Body.String(); !strings.Contains(body, "3 workers") {
		t.Error("confirmation page does not show the number of workers")
	}
	status, location, body := post(t, c, "/workers/pause", url.Values{"queue": {"orders"}, "for": {"10m"}, "reason": {"down"}}, operate)
	if status != http.StatusSeeOther || location != "/workers" || len(crew.commands) != 1 || crew.commands[0].Pause.Reason != "down" {
		t.Errorf("pause: got status %d, want 303, got location %s, want /workers, commands %+v: %s", status, location, crew.commands, body)
	}
	if status, _, _ := post(t, c, "/workers/pause", url.Values{"queue": {"orders"}, "for": {"soon"}}, operate); status != http.StatusBadRequest {
		t.Errorf("pause with an invalid duration: got status %d, want 400", status)
	}
	if status, location, _ := post(t, c, "/workers/resume", url.Values{"queue": {"orders"}, "worker": {"dddd"}}, operate); status != http.StatusSeeOther || location != "/workers" || crew.commands[1].Worker != "dddd" {
		t.Errorf("resume: got status %d, want 303, commands %+v", status, crew.commands)
	}
	if body := ask(t, c, "GET", "/audit", nil, operate).Body.String(); !strings.Contains(body, "queue orders") || !strings.Contains(body, "worker dddd") {
		t.Error("audit log does not show the pause")
	}
	if w := ask(t, newConsole(t, Config{}), "GET", "/workers", nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "does not listen to workers") {
		t.Errorf("page without workers: got status %d, want 200", w.Code)
	}
}

// The overview does not warn of a queue whose workers an operator has paused.
func TestOverviewShowsPausedQueue(t *testing.T) {
	management := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/queues") {
			_, _ = io.WriteString(w, "[]")
			return
		}
		_, _ = io.WriteString(w, `[{"name": "mails", "vhost": "/", "messages_ready": 7, "messages_unacknowledged": 0, "consumers": 0},
			{"name": "idle", "vhost": "/", "messages_ready": 7, "messages_unacknowledged": 0, "consumers": 0}]`)
	}))
	t.Cleanup(management.Close)
	a := newArchive(t, store.Config{})
	d := newConsole(t, Config{Archive: a, Fleet: newFakeFleet(), Management: &mgmtapi.API{URL: management.URL}})
	page := ask(t, d, "GET", "/", nil).Body.String()
	for queue, want := range map[string]string{"mails": "paused", "idle": "none"} {
		_, row, _ := strings.Cut(page, `title="`+queue+`"`)
		row, _, _ = strings.Cut(row, "</tr>")
		if !strings.Contains(row, want) {
			t.Errorf("queue %s: got row %s, want %q", queue, row, want)
		}
	}
}

// The list of waiting retries names queues with blocked keys, because it does not contain their messages.
func TestRetryingNamesQueuesWithBlockedKeys(t *testing.T) {
	crew := withKeys()
	crew.workers[4].Counts.Retried = 7
	c := newConsole(t, Config{Archive: newArchive(t, store.Config{}), Fleet: crew})
	body := ask(t, c, "GET", "/retrying", nil).Body.String()
	if !strings.Contains(body, `<strong>Not listed:</strong> retries of <span class="mono">payments</span>. Their workers keep the order of keys`) {
		t.Errorf("page does not refer to the blocked keys: %s", body)
	}
	s := get[api.WaitingSummary](t, ask(t, newCheckedConsole(t, c), "GET", "/api/v1/waiting/summary", nil))
	if len(s.Keyed) != 1 || s.Keyed[0] != "payments" || len(s.Silent) != 0 {
		t.Errorf("summary: got keyed %q and silent %q, want payments and none", s.Keyed, s.Silent)
	}
}

package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testhook"
)

// fakeRescheduler records actions.
type fakeRescheduler struct {
	acts []waiting.Act
	res  waiting.Result
	err  error
}

func (r *fakeRescheduler) Blocked() []waiting.BlockedQueue {
	return []waiting.BlockedQueue{{Queue: "stakes", WaitQueue: "stakes_delay", FailedQueue: "stakes_failed", Messages: 7}}
}

func (r *fakeRescheduler) Act(_ context.Context, act waiting.Act, _ failed.Actor) (waiting.Result, error) {
	r.acts = append(r.acts, act)
	return r.res, r.err
}

// waits archives the report of a worker with n messages that wait for a retry in a queue.
func waits(t testing.TB, a *store.Archive, queue string, n int) {
	t.Helper()
	now := a.Config().Clock()
	r := protocol.RetryReport{Queue: queue, Host: "web-1"}
	for i := range n {
		r.Retries = append(r.Retries, protocol.Retry{
			MessageID: fmt.Sprintf("%s-%d", queue, i), Wait: queue + ".wait.3078660-3848325", Attempt: i + 1, Failed: now, Due: now.Add(time.Duration(i+1) * time.Hour),
			Error: fmt.Sprintf("no customer <%d>", i),
		})
	}
	body, err := r.Encode()
	if err == nil {
		err = testhook.Retried(t.Context(), a, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestWaitingAPI(t *testing.T) {
	a := newArchive(t, store.Config{})
	waits(t, a, "orders", 3)
	waits(t, a, "mails", 1)
	r := &fakeRescheduler{res: waiting.Result{Selected: 3, Done: 1, Gone: 1, Refused: []waiting.WaitingRefusal{{Why: "it is full", Messages: 1}}}}
	crew := newFakeFleet()
	for i := range crew.workers {
		crew.workers[i].Queue, crew.workers[i].Counts.Retried = "refunds", 1
	}
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Rescheduler: r, Fleet: crew}))

	page := get[api.WaitingPage](t, ask(t, d, "GET", "/api/v1/waiting?size=2", nil))
	rest := get[api.WaitingPage](t, ask(t, d, "GET", "/api/v1/waiting?size=2&after="+page.Next, nil))
	if len(page.Messages) != 2 || len(rest.Messages) != 2 || rest.Next != "" || rest.Messages[1].MessageID != "orders-2" || rest.Messages[1].Attempt != 3 {
		t.Errorf("pages: got %+v, %+v, want len(Messages) 2, Next \"\", Messages[1].MessageID orders-2, Messages[1].Attempt 3", page, rest)
	}
	for query, want := range map[string]int{"queue=orders": 3, "attempt=2": 2, "before=90m": 2, "error=%3C2%3E": 1, "id=1&id=2": 2, "group=" + page.Messages[0].Group[:5]: 4, "queue=none": 0} {
		if got := get[api.WaitingPage](t, ask(t, d, "GET", "/api/v1/waiting?"+query, nil)).Messages; len(got) != want && !strings.HasPrefix(query, "group") {
			t.Errorf("%s: %d messages, want %d", query, len(got), want)
		}
	}
	for _, query := range []string{"attempt=x", "attempt=-1", "group=xyz", "before=soon", "queue=", "unknown=1"} {
		refused(t, ask(t, d, "GET", "/api/v1/waiting?"+query, nil), http.StatusBadRequest, "")
	}
	s := get[api.WaitingSummary](t, ask(t, d, "GET", "/api/v1/waiting/summary", nil))
	if b := s.Blocked; len(b) != 1 || b[0].WaitQueue != "stakes_delay" || b[0].Messages != 7 || !strings.Contains(string(b[0].Remedy), "--to stakes_failed") {
		t.Errorf("blocked queues: got %+v, want stakes_delay with 7 messages and a remedy", b)
	}
	if s.Counts.Messages != 4 || len(s.Queues) != 2 || len(s.Groups) != 2 || s.Groups[0].Counts.Messages != 3 || s.Groups[0].Text == "" || len(s.Silent) != 1 || s.Silent[0] != "refunds" {
		t.Errorf("summary: got %+v, want 4 messages in 2 queues and 2 groups, and refunds as silent", s)
	}

	dry := get[api.WaitingDone](t, ask(t, d, "POST", "/api/v1/waiting/park?dry_run=true", `{"filter":{"queue":"orders"}}`))
	if dry.Selected != 3 || !dry.DryRun || len(r.acts) != 0 {
		t.Errorf("dry run: got %+v, actions %+v, want none", dry, r.acts)
	}
	done := get[api.WaitingDone](t, ask(t, d, "POST", "/api/v1/waiting/postpone", `{"filter":{"queue":"orders"},"at_most":3,"delay":"2h","reason":"down"}`))
	if done.Selected != 3 || done.Done != 1 || done.Gone != 1 || done.Refused[0].Why != "it is full" {
		t.Errorf("postpone: got %+v, want Selected 3, Done 1, Gone 1, Refused[0].Why \"it is full\"", done)
	}
	if act := r.acts[0]; act.Do != waiting.Postpone || act.Filter.Queue != "orders" || act.AtMost != 3 || act.Delay != params.Duration(2*time.Hour) || act.Reason != "down" {
		t.Errorf("action: got %+v, want to postpone 3 messages of orders by 2h", act)
	}
	for _, body := range []string{`{"filter":{}}`, `{"filter":{"queue":"orders"},"delay":"2h"}`, `{"filter":{"group":"x"}}`, `{"all":true,"filter":{"queue":"orders"}}`} {
		refused(t, ask(t, d, "POST", "/api/v1/waiting/retry", body), http.StatusBadRequest, "")
	}
	if len(r.acts) != 1 {
		t.Errorf("actions after refused requests: got %+v, want len 1", r.acts)
	}
	// If an error occurs midway, the response includes the results up to this error.
	r.err = errors.New("the connection is lost")
	done = get[api.WaitingDone](t, ask(t, d, "POST", "/api/v1/waiting/retry", `{"all":true,"filter":{}}`))
	if done.Done != 1 || !strings.Contains(done.Refused[len(done.Refused)-1].Why, "stopped early") {
		t.Errorf("retry with an error: got %+v, want Done 1 and the error", done)
	}
	without := newCheckedConsole(t, newConsole(t, Config{Archive: a}))
	refused(t, ask(t, without, "POST", "/api/v1/waiting/retry", `{"all":true,"filter":{}}`), http.StatusServiceUnavailable, "not connected")
}

func TestWaitingPage(t *testing.T) {
	a := newArchive(t, store.Config{})
	r := &fakeRescheduler{}
	c := newConsole(t, Config{Archive: a, Rescheduler: r, Fleet: newFakeFleet()})
	empty := ask(t, c, "GET", "/retrying", nil)
	if empty.Code != http.StatusOK || !strings.Contains(empty.Body.String(), "No waiting messages") {
		t.Errorf("page without messages: got status %d, want 200; body %s", empty.Code, empty.Body)
	}
	waits(t, a, "orders", 3)
	waits(t, a, "mails", 1)
	page := ask(t, c, "GET", "/retrying?queue=orders", nil).Body.String()
	for _, want := range []string{"3 messages", "7 messages in <span class=\"mono\">stakes_delay</span> cannot return", "reprise redrive --from stakes_delay --to stakes_failed --limit 1", "no customer &lt;0&gt;", "orders-2", "/retrying/act?do=park&amp;id=1", "/retrying/act?do=retry&amp;queue=orders", "Postpone all…"} {
		if !strings.Contains(page, want) {
			t.Errorf("page does not contain %q", want)
		}
	}
	if strings.Contains(page, "mails-0") {
		t.Error("page shows a message of another queue")
	}
	if wrong := ask(t, c, "GET", "/retrying?attempt=x", nil); wrong.Code != http.StatusBadRequest {
		t.Errorf("invalid attempt: got status %d, want 400", wrong.Code)
	}
	form := ask(t, c, "GET", "/retrying/act?do=postpone&queue=orders", nil)
	for _, want := range []string{"Postpone: 3 messages", "queue orders", `name="at_most" value="3"`} {
		if !strings.Contains(form.Body.String(), want) {
			t.Errorf("form does not contain %q: %s", want, form.Body)
		}
	}
	post := func(body string) int {
		w := ask(t, c, "POST", "/retrying/act", body, header("Content-Type", "application/x-www-form-urlencoded"))
		return w.Code
	}
	for body, want := range map[string]int{
		"do=postpone&queue=orders&at_most=3&delay=soon": http.StatusUnprocessableEntity,
		"do=retry&queue=orders":                         http.StatusBadRequest,
		"do=retry&at_most=4":                            http.StatusBadRequest,
		"do=drop&queue=orders&at_most=3":                http.StatusBadRequest,
	} {
		if got := post(body); got != want || len(r.acts) != 0 {
			t.Errorf("%s: status %d, want %d: %+v", body, got, want, r.acts)
		}
	}
	r.err = fmt.Errorf("%w: more messages match", failed.ErrState)
	if got := post("do=retry&queue=orders&at_most=2"); got != http.StatusConflict {
		t.Errorf("action on more messages: status %d, want 409", got)
	}
	r.err, r.acts = nil, nil
	r.res = waiting.Result{Selected: 3, Done: 1, Gone: 1, Refused: []waiting.WaitingRefusal{{Why: "x", Messages: 1}}}
	if got := post("do=postpone&queue=orders&at_most=3&delay=90m&reason=down"); got != http.StatusSeeOther {
		t.Errorf("postpone: status %d, want 303", got)
	}
	if act := r.acts[0]; act.Do != waiting.Postpone || act.Delay != params.Duration(90*time.Minute) || act.AtMost != 3 || act.Reason != "down" || act.Filter.Queue != "orders" {
		t.Errorf("action: got %+v, want to postpone 3 messages of orders by 1h30m", act)
	}
	// The form for picked rows selects the messages by ID.
	picked := func(body string) (int, string) {
		w := ask(t, c, "POST", "/retrying/picked", body, header("Content-Type", "application/x-www-form-urlencoded"))
		return w.Code, w.Body.String()
	}
	if code, body := picked("do=park&id=1&id=3"); code != http.StatusOK || fieldsOf(body).Encode() != "at_most=2&do=park&id=1&id=3" || !strings.Contains(body, "2 selected") {
		t.Errorf("form for picked messages: got status %d, want 200; body %s", code, body)
	}
	if got := post("do=park&id=1&id=3&at_most=2"); got != http.StatusSeeOther || fmt.Sprint(r.acts[1].Filter.IDs) != "[1 3]" {
		t.Errorf("action on picked messages: got status %d, want 303, actions %+v", got, r.acts)
	}
	for _, body := range []string{"do=park", "id=1", "do=drop&id=1", "do=park&id=x", "do=park&id=1&queue=orders"} {
		if code, _ := picked(body); code != http.StatusBadRequest {
			t.Errorf("%s: got status %d, want 400", body, code)
		}
	}
	after := ask(t, c, "GET", "/retrying?act=postpone&done=1&gone=1&left=1&unsure=0", nil).Body.String()
	if !strings.Contains(after, "1 message postponed. 1 no longer waiting. 1 unchanged.") {
		t.Errorf("page does not show the result: %s", after)
	}
}

package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// The page erases the displayed messages after the user has entered their number.
func TestErasePage(t *testing.T) {
	list, secrets := tokens()
	a := newArchive(t, store.Config{})
	threeGroups(t, a)
	c := newConsole(t, Config{Archive: a, Tokens: list, Replayer: &fakeReplayer{}})
	admin, operator := bearer(secrets[Admin]), bearer(secrets[Operate])
	for _, page := range []string{"/messages?text=stock", "/messages/4", "/messages?state=discarded"} {
		if body := ask(t, c, "GET", page, nil, operator).Body.String(); strings.Contains(body, "/erase") {
			t.Errorf("%s shows an operator the erase action", page)
		}
	}
	form := ask(t, c, "GET", linkTo(t, ask(t, c, "GET", "/messages?text=stock", nil, admin).Body.String(), "/erase"), nil, admin).Body.String()
	if !strings.Contains(form, "Erase 2 messages</h1>") || !strings.Contains(text(form), "Kept: queue, state, times") || fieldsOf(form).Get("at_most") != "2" {
		t.Fatalf("form: got %s, want \"Erase 2 messages</h1>\"", form)
	}
	fill := func(v url.Values, more ...string) url.Values {
		for i := 0; i < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v
	}
	before := states(t, a)
	for name, tc := range map[string]struct {
		v    url.Values
		who  func(*http.Request)
		want int
	}{
		"no number":    {fill(fieldsOf(form), "reason", "tested"), admin, http.StatusUnprocessableEntity},
		"other number": {fill(fieldsOf(form), "reason", "tested", "count", "3"), admin, http.StatusUnprocessableEntity},
		"no reason":    {fill(fieldsOf(form), "reason", " ", "count", "2"), admin, http.StatusUnprocessableEntity},
		"too few":      {fill(fieldsOf(form), "reason", "tested", "count", "1", "at_most", "1"), admin, http.StatusConflict},
		"none shown":   {url.Values{"id": {"4"}, "reason": {"tested"}, "count": {"1"}}, admin, http.StatusBadRequest},
		"all":          {url.Values{"all": {"true"}, "at_most": {"9"}, "reason": {"tested"}, "count": {"9"}}, admin, http.StatusBadRequest},
		"an operator":  {fill(fieldsOf(form), "reason", "tested", "count", "2"), operator, http.StatusForbidden},
	} {
		if status, _, body := post(t, c, "/erase", tc.v, tc.who); status != tc.want {
			t.Errorf("%s: status %d, want %d: %s", name, status, tc.want, body)
		}
	}
	if got := moved(before, states(t, a)); got != nil {
		t.Fatalf("messages %v changed", got)
	}
	status, location, body := post(t, c, "/erase", fill(fieldsOf(form), "reason", "tested", "count", "2"), admin)
	if status != http.StatusSeeOther || fmt.Sprint(moved(before, states(t, a))) != "[4 5]" {
		t.Fatalf("erase: got status %d, want 303; body %s, changed %v", status, body, moved(before, states(t, a)))
	}
	if body := ask(t, c, "GET", location, nil, admin).Body.String(); !strings.Contains(body, "2 messages erased.") {
		t.Errorf("GET %s: got %s, want \"2 messages erased.\"", location, body)
	}
	if m, err := a.Get(t.Context(), 4); err != nil || !m.Erased || m.State != failed.Discarded {
		t.Errorf("erased message: got %+v, want Erased true, State Discarded; error %v", m, err)
	}
	// An erased message cannot be erased again.
	if body := ask(t, c, "GET", "/erase?id=4&state=discarded", nil, admin).Body.String(); !strings.Contains(body, "No messages to erase") {
		t.Errorf("erase page of an erased message: got %s, want \"No messages to erase\"", body)
	}
	if body := ask(t, c, "GET", "/messages/4", nil, admin).Body.String(); strings.Contains(body, "/erase") {
		t.Error("page of an erased message offers to erase it")
	}
	status, _, body = post(t, c, "/erase/picked", url.Values{"id": {"1", "2"}}, admin)
	if status != http.StatusOK || !strings.Contains(body, "Erase 2 messages</h1>") {
		t.Errorf("erase of picked messages: got status %d, want 200; body %s", status, body)
	}
}

// A search erases the messages in all states, also if the list shows only one state or nothing, and names what a running
// replay keeps.
func TestErasePageCoversAllStates(t *testing.T) {
	a := newArchive(t, store.Config{Redact: []failed.Rule{{Path: "card"}}})
	var messages []failed.Message
	for range 4 {
		messages = append(messages, failed.Message{Queue: "orders", FailedQueue: "orders.failed", Error: "declined", Content: failed.Content{Body: []byte(`{"card":"4711"}`)}})
	}
	if _, err := a.Add(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Discard(t.Context(), failed.Filter{IDs: []failed.ID{1}}, "test", "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{2}}, ByQueueName: true}, "ann"); err != nil {
		t.Fatal(err)
	}
	c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
	list := ask(t, c, "GET", "/messages?text=4711&state=replayed", nil).Body.String()
	form := ask(t, c, "GET", linkTo(t, list, "/erase"), nil).Body.String()
	for _, want := range []string{"Erase 3 messages", "3 messages in all selected states: 2 failed, 1 discarded.", "hidden values or edits", "Not erased: 1 message of a running replay"} {
		if !strings.Contains(text(form), want) {
			t.Errorf("form: got %s, want %q", text(form), want)
		}
	}
	v := fieldsOf(form)
	v.Set("reason", "tested")
	v.Set("count", "3")
	status, location, body := post(t, c, "/erase", v)
	if status != http.StatusSeeOther {
		t.Fatalf("got status %d, want 303; body %s", status, body)
	}
	if body := ask(t, c, "GET", location, nil).Body.String(); !strings.Contains(body, "3 messages erased. Not erased: 1 message of a running replay.") {
		t.Errorf("GET %s: got %s, want the number of messages that are not erased", location, text(body))
	}
	for id := range failed.ID(4) {
		if m, err := a.Get(t.Context(), id+1); err != nil || m.Erased == (id+1 == 2) {
			t.Errorf("message %d erased: got %v, %v", id+1, m.Erased, err)
		}
	}
}

// The audit page finds acts by actor and reason, and undoes one discard. The history of a message names each act.
func TestAuditPageUndoesOneAct(t *testing.T) {
	a := newArchive(t, store.Config{})
	threeGroups(t, a)
	c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
	discard := func(f failed.Filter, reason string, who failed.Actor) {
		t.Helper()
		if _, err := a.Discard(t.Context(), f, reason, who); err != nil {
			t.Fatal(err)
		}
	}
	discard(failed.Filter{IDs: []failed.ID{4}}, "paid by hand", "bob")
	discard(failed.Filter{Text: "stock"}, "test orders", "ann")
	page := ask(t, c, "GET", "/audit?text=test+orders&actor=ann", nil).Body.String()
	if shown := text(page); !strings.Contains(shown, "test orders") || strings.Contains(shown, "paid by hand") {
		t.Errorf("audit page: got %s, want only the act of ann", shown)
	}
	form := ask(t, c, "GET", linkTo(t, page, "/restore"), nil).Body.String()
	if !strings.Contains(form, "Restore 1 message</h1>") {
		t.Fatalf("form: got %s, want 1 message", text(form))
	}
	if status, _, body := post(t, c, "/restore", fieldsOf(form)); status != http.StatusSeeOther {
		t.Fatalf("restore: got status %d, body %s", status, body)
	}
	for id, want := range map[failed.ID]failed.State{4: failed.Discarded, 5: failed.Failed} {
		if m, err := a.Get(t.Context(), id); err != nil || m.State != want {
			t.Errorf("message %d: got %s, %v, want %s", id, m.State, err, want)
		}
	}
	history := text(ask(t, c, "GET", "/messages/5", nil).Body.String())
	if i, j := strings.Index(history, "by ann, act 2"), strings.Index(history, "Restored"); i < 0 || j < i {
		t.Errorf("history: got %s, want the discard by ann, then the restore", history)
	}
	if got := ask(t, c, "GET", "/audit?since=yesterday", nil); got.Code != http.StatusBadRequest || !strings.Contains(text(got.Body.String()), "is not a time") {
		t.Errorf("invalid time: got status %d, %s", got.Code, text(got.Body.String()))
	}
}

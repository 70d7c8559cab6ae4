package console

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

var submission = regexp.MustCompile(`name="submission" value="([^"]+)"`)

// A form that is submitted twice acts once, even if messages that match its filter arrive between the two requests.
func TestFormActsOnce(t *testing.T) {
	arrive := func(t *testing.T, a *store.Archive) {
		for range 2 {
			add(t, a, func(m *failed.Message) { m.Queue = "orders" })
		}
	}
	discarded := func(t *testing.T, a *store.Archive) {
		arrive(t, a)
		if _, err := a.Discard(t.Context(), failed.Filter{Queue: "orders"}, "tested", "me"); err != nil {
			t.Fatal(err)
		}
	}
	for path, tc := range map[string]struct {
		page   string
		fill   url.Values
		arrive func(*testing.T, *store.Archive)
	}{
		"/discard": {"/discard?queue=orders", url.Values{"reason": {"tested"}}, arrive},
		"/restore": {"/restore?queue=orders", nil, discarded},
		"/erase":   {"/erase?queue=orders", url.Values{"reason": {"tested"}, "count": {"2"}}, arrive},
		"/replays": {"/replays/new?queue=orders", nil, arrive},
	} {
		t.Run(path[1:], func(t *testing.T) {
			a := newArchive(t, store.Config{})
			c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
			tc.arrive(t, a)
			page := ask(t, c, "GET", tc.page, nil).Body.String()
			form := fieldsOf(page)
			maps.Copy(form, tc.fill)
			form.Set("submission", submissionOf(t, page))
			if status, _, body := post(t, c, path, form); status != http.StatusSeeOther {
				t.Fatalf("first request: got status %d, want 303; body %s", status, body)
			}
			tc.arrive(t, a)
			before := states(t, a)
			if status, _, body := post(t, c, path, form); status != http.StatusConflict || !strings.Contains(text(body), "already submitted") {
				t.Errorf("second request: got status %d, want 409; page %s", status, text(body))
			}
			if got := moved(before, states(t, a)); got != nil {
				t.Errorf("the second request changed the messages %v", got)
			}
			page = ask(t, c, "GET", tc.page, nil).Body.String()
			form = fieldsOf(page)
			maps.Copy(form, tc.fill)
			form.Set("submission", submissionOf(t, page))
			if status, _, body := post(t, c, path, form); status != http.StatusSeeOther {
				t.Errorf("form of a new page: got status %d, want 303; page %s", status, text(body))
			}
		})
	}
}

// A refused form can be corrected and submitted again from the same page.
func TestInvalidFormCanBeResubmitted(t *testing.T) {
	a := newArchive(t, store.Config{})
	c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
	add(t, a, func(m *failed.Message) { m.Queue = "orders" })
	page := ask(t, c, "GET", "/discard?queue=orders", nil).Body.String()
	form := fieldsOf(page)
	form.Set("submission", submissionOf(t, page))
	if status, _, _ := post(t, c, "/discard", form); status != http.StatusUnprocessableEntity {
		t.Fatalf("discard without a reason: got status %d, want 422", status)
	}
	form.Set("reason", "tested")
	if status, _, body := post(t, c, "/discard", form); status != http.StatusSeeOther {
		t.Errorf("corrected form: got status %d, want 303; page %s", status, text(body))
	}
}

// Forms that change the broker, such as purge and publish, also act once.
func TestBrokerFormActsOnce(t *testing.T) {
	broker := newBroker(t)
	c := newConsole(t, Config{Broker: broker})
	publish := func(n int) {
		for range n {
			if err := broker().Publish(t.Context(), &reprise.Message{RoutingKey: "orders", Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		page, path string
		fill       url.Values
		want       int // messages in the queue after both requests
	}{
		{"/queues/purge?queue=orders", "/queues/purge", url.Values{"reason": {"tested"}, "name": {"orders"}}, 2},
		{"/publish?queue=orders", "/publish", url.Values{"queue": {"orders"}, "body": {"{}"}, "do": {"publish"}}, 5},
	} {
		publish(2)
		page := ask(t, c, "GET", tc.page, nil).Body.String()
		form := fieldsOf(page)
		maps.Copy(form, tc.fill)
		form.Set("submission", submissionOf(t, page))
		if status, _, body := post(t, c, tc.path, form); status != http.StatusSeeOther {
			t.Fatalf("%s: got status %d, want 303; page %s", tc.path, status, text(body))
		}
		if tc.path == "/queues/purge" {
			publish(2)
		}
		if status, _, body := post(t, c, tc.path, form); status != http.StatusConflict || !strings.Contains(text(body), "already submitted") {
			t.Errorf("%s: got status %d, want 409; page %s", tc.path, status, text(body))
		}
		if n, err := broker().Depth(t.Context(), "orders"); n != tc.want || err != nil {
			t.Errorf("%s: depth %d, want %d: %v", tc.path, n, tc.want, err)
		}
	}
}

// An API request with the Idempotency-Key of an earlier request has no effect. Without a key, each request has an
// effect.
func TestIdempotencyKeyPreventsRepetition(t *testing.T) {
	a := newArchive(t, store.Config{})
	c := newConsole(t, Config{Archive: a, Replayer: &fakeReplayer{}})
	discard := func(key string) int {
		add(t, a, func(m *failed.Message) { m.Queue = "orders" })
		change := []func(*http.Request){}
		if key != "" {
			change = append(change, header("Idempotency-Key", key))
		}
		w := ask(t, c, "POST", "/api/v1/discard", `{"filter":{"queue":"orders"},"at_most":1,"reason":"tested"}`, change...)
		if w.Code == http.StatusConflict {
			refused(t, w, http.StatusConflict, "the Idempotency-Key was already used")
			if _, err := a.Discard(t.Context(), failed.Filter{Queue: "orders"}, "tested", "me"); err != nil {
				t.Fatal(err)
			}
		}
		return w.Code
	}
	got := []int{discard("k1"), discard("k1"), discard("k2"), discard(""), discard(""), discard(strings.Repeat("k", 101))}
	if want := []int{200, 409, 200, 200, 200, 400}; !slices.Equal(got, want) {
		t.Errorf("status codes: got %v, want %v", got, want)
	}
}

func submissionOf(t *testing.T, page string) string {
	t.Helper()
	found := submission.FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("page contains no submission: %s", page)
	}
	return found[1]
}

package console

import (
	"html"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

// Pages and the JSON API decode every condition of a filter from the URLs that web.HrefMessages returns.
func TestURLsRetainFilter(t *testing.T) {
	for name, f := range filters() {
		if name == "All" || name == "AtMost" || name == "Through" {
			continue // not a parameter of a list
		}
		for _, path := range []string{"/messages", "/api/v1/messages"} {
			c := newConsole(t, Config{})
			add(t, c.cfg.Archive, nil)
			add(t, c.cfg.Archive, nil)
			if _, err := c.cfg.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{1}}}, "test"); err != nil {
				t.Fatal(err)
			}
			var got failed.Filter
			c.server.Build([]web.Route{{Method: "GET", Path: path, Role: View, Query: failed.FilterNames, Handle: func(c *web.Call) (err error) {
				got, err = c.Filter()
				return err
			}}})
			if w := ask(t, c, "GET", string(web.HrefMessages(path, f)), nil); w.Code != http.StatusOK {
				t.Errorf("%s of %s: got status %d, want 200; body %s", name, path, w.Code, w.Body)
			}
			if !reflect.DeepEqual(got, f) {
				t.Errorf("%s of %s: got %+v, want %+v", name, path, got, f)
			}
		}
	}
}

func TestSearchFormRetainsConditions(t *testing.T) {
	c := newConsole(t, Config{})
	add(t, c.cfg.Archive, nil)
	add(t, c.cfg.Archive, nil)
	if _, err := c.cfg.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{1}}}, "test"); err != nil {
		t.Fatal(err)
	}
	for name, f := range filters() {
		if name == "All" || name == "AtMost" || name == "Through" {
			continue // not conditions
		}
		w := ask(t, c, "GET", string(web.HrefMessages("/messages", f)), nil)
		form, _, _ := strings.Cut(w.Body.String(), "</form>")
		for param, values := range f.Values() {
			for _, value := range values {
				if !strings.Contains(form, `name="`+param+`"`) || !strings.Contains(form, `value="`+html.EscapeString(value)+`"`) {
					t.Errorf("%s: form does not contain %s=%s: status %d", name, param, value, w.Code)
				}
			}
		}
	}
}

func TestSearchForms(t *testing.T) {
	c := newConsole(t, Config{})
	threeGroups(t, c.cfg.Archive)
	now := time.Now().UTC().Format("2006-01-02T15:04")
	for query, want := range map[string]string{
		"text=&queue=&since=&state=failed&error=&header=&until=&min_attempts=&max_attempts=&replay=&refused_by=": "9 messages",
		"queue=mails&text=&since=": "4 messages: queue mails",
		"header=tenant:+acme":      "9 messages: header tenant: acme",
		"until=" + now:             "9 messages: failed before",
		"until=2026-02-01":         "No failed messages",
		"group=2":                  `name="group" inputmode="numeric" value="2"`,
	} {
		w := ask(t, c, "GET", "/messages?"+query, nil)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got status %d, want 200; page does not contain %q", query, w.Code, want)
		}
	}
}

// All links of a list retain its filter, including the links to other states, to the next page, to actions, to exports,
// and back from an action.
func TestLinksRetainFilter(t *testing.T) {
	c := newConsole(t, Config{Replayer: &fakeReplayer{}})
	for range 60 {
		add(t, c.cfg.Archive, func(m *failed.Message) {
			m.Queue, m.Error = "orders & more", "a=b&c: 100% lost"
			m.Headers = topology.Table{"x:y": " 50%"}
		})
	}
	f := failed.Filter{
		Queue: "orders & more", States: []failed.State{failed.Failed}, Group: 1, Since: noon.Add(-time.Hour), Until: noon.Add(time.Hour), Text: "a=b&c",
		Error: "100%", Headers: map[string]string{"x:y": " 50%"}, MinAttempts: 2, MaxAttempts: 9,
	}
	read := func(address string) (failed.Filter, url.Values) {
		u, err := url.Parse(html.UnescapeString(address))
		if err != nil {
			t.Fatal(err)
		}
		got, err := failed.ParseFilter(web.Only(u.Query(), failed.FilterNames), noon)
		if err != nil {
			t.Errorf("%s: %v", address, err)
		}
		return got, u.Query()
	}
	page := ask(t, c, "GET", string(web.HrefMessages("/messages", f)), nil).Body.String()
	kinds := map[string]int{}
	for _, m := range regexp.MustCompile(`href="(/(?:messages|discard|replays/new|api/v1/messages/export)\?[^"]*)"`).FindAllStringSubmatch(page, -1) {
		got, query := read(m[1])
		want := f
		if state := query.Get("state"); state != "failed" {
			want.States = got.States
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("filter of %s: got %+v, want %+v", m[1], got, want)
		}
		path, _, _ := strings.Cut(m[1], "?")
		kinds[path]++
		if query.Has("after") {
			kinds["next"]++
			if next := ask(t, c, "GET", html.UnescapeString(m[1]), nil); strings.Count(next.Body.String(), `<tr id="m`) != 10 {
				t.Errorf("next page: status %d, body %s", next.Code, next.Body)
			}
		}
		if path == "/discard" || path == "/replays/new" {
			act := ask(t, c, "GET", html.UnescapeString(m[1]), nil).Body.String()
			back := regexp.MustCompile(`href="([^"]*)">Back</a>`).FindStringSubmatch(act)
			if back == nil {
				t.Errorf("%s has no link back to the list", m[1])
			} else if got, _ := read(back[1]); !reflect.DeepEqual(got, f) {
				t.Errorf("filter of the link back from %s: got %+v, want %+v", m[1], got, f)
			}
		}
	}
	if want := map[string]int{"/messages": 6, "next": 1, "/discard": 1, "/replays/new": 1, "/api/v1/messages/export": 2}; !reflect.DeepEqual(kinds, want) {
		t.Errorf("links: got %v, want %v", kinds, want)
	}
}

// The page for an invalid filter contains the form with the input, and the error next to the invalid field.
func TestPageRefusesInvalidFilter(t *testing.T) {
	c := newConsole(t, Config{})
	add(t, c.cfg.Archive, nil)
	tried := map[string]bool{}
	for _, test := range []struct {
		path, name, value, more string
		status                  int
		want                    string
	}{
		{"/messages", "queue", "base64:!", "", 400, "must have base64"},
		{"/messages", "state", "dead", "", 400, "State “dead” not found"},
		{"/messages", "group", "x", "", 400, "“x” is not a positive integer"},
		{"/messages", "group", "999", "", 404, "Group 999 not found."},
		{"/messages", "since", "yesterday", "", 400, "“yesterday” is not a time (write"},
		{"/messages", "since", "1h", "until=2h", 400, "Since must be before until"},
		{"/messages", "until", "<b>", "", 400, "“<b>” is not a time (write"},
		{"/messages", "text", "%%", "", 400, "Text must have a letter or a digit"},
		{"/messages", "error", "  ", "", 400, "Error must not be blank"},
		{"/messages", "header", "tenant", "", 400, "“tenant” is not NAME:VALUE"},
		{"/messages", "min_attempts", "1.5", "", 400, "“1.5” is not a positive integer"},
		{"/messages", "min_attempts", "5", "max_attempts=3", 400, "must not be more than"},
		{"/messages", "max_attempts", "-1", "", 400, "“-1” is not a positive integer"},
		{"/messages", "id", "9", "", 404, "Message 9 not found."},
		{"/messages", "replay", "8", "", 404, "Replay 8 not found."},
		{"/messages", "refused", "maybe", "", 400, "“maybe” is not true or false"},
		{"/messages", "refused_by", "7", "", 404, "Replay 7 not found."},
		{"/messages", "sent_by", "6", "", 404, "Replay 6 not found."},
		{"/messages", "act", "5", "", 404, "Act 5 not found."},
		{"/messages", "outcome", "lost", "", 400, "Outcome “lost” not found"},
		{"/messages", "outcome", "succeeded", "", 400, "Outcome must be combined with sent_by"},
		{"/groups", "queue", "base64:!", "", 400, "must have base64"},
		{"/groups", "order", "first", "", 400, "“first” is not failed or last"},
		{"/groups", "state", "dead", "", 400, "“dead” is not failed"},
	} {
		q, err := url.ParseQuery(test.more)
		if err != nil {
			t.Fatal(err)
		}
		q.Set(test.name, test.value)
		tried[test.path+" "+test.name] = true
		address := test.path + "?" + q.Encode()
		w := ask(t, c, "GET", address, nil)
		page := w.Body.String()
		form := page[strings.Index(page, "<form class=\"filter\""):]
		form, _, _ = strings.Cut(form, "</form>")
		text := html.UnescapeString(tags.ReplaceAllString(form, ""))
		if w.Code != test.status || !strings.Contains(text, test.want) {
			t.Errorf("%s: got status %d, want %d; page does not contain %q: %s", address, w.Code, test.status, test.want, text)
		}
		for name := range q {
			if !strings.Contains(form, `name="`+name+`"`) || !strings.Contains(form, `value="`+html.EscapeString(q.Get(name))+`"`) && name != "order" {
				t.Errorf("%s: form does not contain %s=%s: %s", address, name, q.Get(name), form)
			}
		}
		if hidden := strings.Contains(form, `type="hidden" name="`+test.name); hidden == strings.Contains(form, `aria-describedby="wrong-`+test.name+`"`) {
			t.Errorf("%s: field has no error: %s", address, form)
		}
	}
	if w := ask(t, c, "GET", "/groups/999", nil); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "<h1>Group 999 not found.</h1>") {
		t.Errorf("missing group: got status %d, want 404; body %s", w.Code, w.Body)
	}
	for _, p := range failed.FilterParams() {
		if !tried["/messages "+p.Name] {
			t.Errorf("no invalid %s was tested", p.Name)
		}
	}
}

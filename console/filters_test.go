package console

import (
	"html"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// Every condition passes through an address unchanged: hrefMessages writes it, and pages and
// the JSON API read the same from it.
func TestAddressesKeepTheFilter(t *testing.T) {
	for name, f := range filters() {
		if name == "All" || name == "AtMost" {
			continue // not of a list
		}
		for _, path := range []string{"/messages", "/api/v1/messages"} {
			c := newConsole(t, Config{})
			add(t, c.cfg.Archive, nil)
			add(t, c.cfg.Archive, nil)
			if _, err := c.cfg.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{1}}}, "test"); err != nil {
				t.Fatal(err)
			}
			var got failed.Filter
			c.server.Build([]web.Route{{Method: "GET", Path: path, Role: View, Query: api.FilterNames, Handle: func(c *web.Call) (err error) {
				got, err = c.Filter()
				return err
			}}})
			if w := ask(t, c, "GET", string(web.HrefMessages(path, f)), nil); w.Code != http.StatusOK {
				t.Errorf("%s of %s: %d %s", name, path, w.Code, w.Body)
			}
			if !reflect.DeepEqual(got, f) {
				t.Errorf("%s of %s: got %+v, want %+v", name, path, got, f)
			}
		}
	}
}

// A search that is sent once more has all conditions of the search before it.
func TestSearchFormKeepsConditions(t *testing.T) {
	c := newConsole(t, Config{})
	add(t, c.cfg.Archive, nil)
	add(t, c.cfg.Archive, nil)
	if _, err := c.cfg.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{1}}}, "test"); err != nil {
		t.Fatal(err)
	}
	for name, f := range filters() {
		if name == "All" || name == "AtMost" || name == "Queue" {
			continue // no conditions, and a list of the queues that exist
		}
		w := ask(t, c, "GET", string(web.HrefMessages("/messages", f)), nil)
		form, _, _ := strings.Cut(w.Body.String(), "</form>")
		for param, values := range f.Values() {
			for _, value := range values {
				if !strings.Contains(form, `name="`+param+`"`) || !strings.Contains(form, `value="`+html.EscapeString(value)+`"`) {
					t.Errorf("%s: the form has no %s=%s: %d", name, param, value, w.Code)
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
		"until=2026-02-01":         "No messages",
		"group=2":                  `<input type="hidden" name="group" value="2">`,
	} {
		w := ask(t, c, "GET", "/messages?"+query, nil)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d, without %q", query, w.Code, want)
		}
	}
}

package console

import (
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// filters are filters with one condition each, by the name of the field.
func filters() map[string]failed.Filter {
	return map[string]failed.Filter{
		"All": {All: true}, "Queue": {Queue: "orders & more"}, "States": {States: []failed.State{failed.Replayed}}, "Group": {Group: 1},
		"Since": {Since: noon}, "Until": {Until: noon}, "Text": {Text: "a=b&c"}, "Error": {Error: "100% \"lost\""},
		"Headers": {Headers: map[string]string{"x:y": " 50%"}}, "MinAttempts": {MinAttempts: 2}, "MaxAttempts": {MaxAttempts: 9},
		"IDs": {IDs: []failed.ID{1, 2}}, "Replay": {Replay: 1}, "Refused": {Refused: true}, "RefusedBy": {RefusedBy: 1}, "AtMost": {AtMost: 5},
	}
}

// A person who confirms an act reads every condition of its filter.
func TestWordsHaveEveryCondition(t *testing.T) {
	all := filters()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[failed.Filter]()) {
		f, ok := all[field.Name]
		if !ok {
			t.Errorf("Filter.%s is not tested", field.Name)
			continue
		}
		words := describeFilter(f)
		if isAll := field.Name == "All" || field.Name == "AtMost"; isAll != (words == "all messages") {
			t.Errorf("Filter.%s is described as %q", field.Name, words)
		}
	}
}

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
			c.build([]route{{method: "GET", path: path, role: View, query: api.FilterNames, handle: func(c *call) (err error) {
				got, err = c.filter()
				return err
			}}})
			if w := ask(t, c, "GET", string(hrefMessages(path, f)), nil); w.Code != http.StatusOK {
				t.Errorf("%s of %s: %d %s", name, path, w.Code, w.Body)
			}
			if !reflect.DeepEqual(got, f) {
				t.Errorf("%s of %s: got %+v, want %+v", name, path, got, f)
			}
		}
	}
}

// A template that writes a query around a value has it escaped as one parameter, so a filter
// in it is lost. Go code writes queries: see href.
func TestTemplatesDoNotWriteQueries(t *testing.T) {
	attribute := regexp.MustCompile(`(?:href|src|action|formaction|hx-[a-z]+)="([^"]*(?:\{\{[^}]*\}\}[^"]*)*)"`)
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		text, err := templateFiles.ReadFile("templates/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range attribute.FindAllStringSubmatch(string(text), -1) {
			n++
			_, query, _ := strings.Cut(m[1], "?")
			if strings.Contains(query, "{{") {
				t.Errorf("%s writes a query: %s", f.Name(), m[0])
			}
		}
	}
	if n < 50 {
		t.Errorf("%d addresses were found, want 50 or more", n)
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

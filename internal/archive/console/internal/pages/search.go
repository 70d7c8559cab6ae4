package pages

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// searchForm is the search form above the list of messages, with its current values.
type searchForm struct {
	Form   url.Values
	Queues []store.QueueSummary
	Fields []searchField
	Rest   []pair // conditions without a field in the form
	Since  string // the selected time, if it is not an option of the form
	Sought bool   // a filter other than the state applies
	More   bool   // Fields or Rest contain a condition
	Wrong  wrong
}

// searchField is a field of the search form below “More filters”.
type searchField struct {
	Name, Label, Placeholder, Value string
	IsNumber                        bool
	Options                         []string // options of a select; nil: text field
}

// searchTexts are the labels and placeholders of search fields. The label of any other condition is its help text.
var searchTexts = map[string][2]string{
	"group":        {"Group"},
	"error":        {"Error text"},
	"header":       {"Header", "name: value"},
	"until":        {"Failed before (UTC)", "2026-01-31T18:00 or 2h"},
	"min_attempts": {"Minimum attempts"},
	"max_attempts": {"Maximum attempts"},
	"replay":       {"Failed after replay"},
	"refused_by":   {"Unsent by replay"},
	"sent_by":      {"Sent by replay"},
	"act":          {"Changed by act"},
	"outcome":      {"Outcome"},
}

// sinces are the times that the form offers.
var sinces = []string{"1h", "24h", "7d", "30d"}

// newSearchForm returns the search form with the values in q, the parameters of the URL.
func newSearchForm(c *web.Call, q url.Values) (*searchForm, error) {
	queues, err := c.Archive.Queues(c.R.Context())
	if err != nil {
		return nil, err
	}
	s := &searchForm{Form: q, Queues: queues}
	var rest url.Values
	s.Fields, rest = searchFields(q)
	s.Rest = pairs(rest)
	for name := range q {
		s.More = s.More || !slices.Contains([]string{"state", "queue", "text", "since"}, name)
	}
	s.Sought = s.More || q.Has("queue") || q.Has("text") || q.Has("since")
	if since := q.Get("since"); since != "" && !slices.Contains(sinces, since) {
		s.Since = since
	}
	return s, nil
}

// searchFields returns the fields below “More filters”, one for each condition that a user can type. It also returns,
// as rest, the values in q that have no field in the form.
func searchFields(q url.Values) (fields []searchField, rest url.Values) {
	rest = url.Values{}
	for _, p := range failed.FilterParams() {
		values := q[p.Name]
		switch p.Name {
		case "queue", "since", "text":
			continue
		case "state", "id": // selected on a page
			rest[p.Name] = values
			continue
		}
		if p.Value == "" { // boolean condition
			rest[p.Name] = values
			continue
		}
		f := searchField{Name: p.Name, Label: p.Help, Value: q.Get(p.Name), IsNumber: p.Value == "N" || p.Value == "ID"}
		if texts, ok := searchTexts[p.Name]; ok {
			f.Label, f.Placeholder = texts[0], texts[1]
		}
		if p.Name == "outcome" {
			for _, o := range failed.Outcomes() {
				f.Options = append(f.Options, string(o))
			}
			if f.Value != "" && !slices.Contains(f.Options, f.Value) {
				f.Options = append(f.Options, f.Value)
			}
		}
		if len(values) > 1 {
			rest[p.Name] = values[1:]
		}
		fields = append(fields, f)
	}
	return fields, rest
}

// TopNames returns the names of the fields above “More filters”.
func (s *searchForm) TopNames() []string { return []string{"text", "queue", "since"} }

// names returns the names of the visible fields.
func (s *searchForm) names() []string {
	names := s.TopNames()
	for _, f := range s.Fields {
		names = append(names, f.Name)
	}
	return names
}

// wrong is a problem with a field of a form. If Name is "", the problem does not belong to a visible field.
type wrong struct{ Name, Text string }

// wrongIn returns the problem with a filter, and the status of the page that shows it. It returns false if the error
// has another cause. The parameter shown contains the names of the visible fields.
func wrongIn(err error, shown ...string) (w wrong, status int, ok bool) {
	if err == nil {
		return w, 0, false
	}
	f := fault.AsFailure(err)
	if f == nil || f.Param == "" {
		return w, 0, false
	}
	w = wrong{f.Param, sentence(strings.TrimPrefix(f.Text, f.Param+": "))}
	if !slices.Contains(shown, w.Name) {
		w.Name = ""
	}
	return w, f.Status, true
}

// stateOf returns the state in the URL of a list, or "" for any state. Default: failed.
func stateOf(q url.Values) failed.State {
	switch state := q.Get("state"); state {
	case "":
		return failed.Failed
	case "all":
		return ""
	default:
		return failed.State(state)
	}
}

// Invalid returns the HTML attributes that mark the field called name as invalid, if the problem belongs to this field.
func (w wrong) Invalid(name string) template.HTMLAttr {
	if w.Text == "" || w.Name != name {
		return ""
	}
	return template.HTMLAttr(fmt.Sprintf(` aria-invalid="true" aria-describedby="wrong-%s" autofocus`, template.HTMLEscapeString(name)))
}

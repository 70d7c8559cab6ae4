package pages

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/console/internal/fault"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
)

// searchForm is the form of the list of messages, as it was sent.
type searchForm struct {
	Form   url.Values
	Queues []failed.QueueSummary
	Fields []searchField
	Rest   []pair // the conditions that the form has no field for
	Since  string // a time that is none of the form's
	Sought bool   // the list is a part of the messages in the state
	More   bool   // a condition of Fields or Rest is set
	Wrong  wrong
}

// searchField is a field of the search form below “More filters”.
type searchField struct {
	Name, Label, Placeholder, Value string
	IsNumber                        bool
	Options                         []string // of a select; nil: it is a text
}

// searchTexts are the labels and placeholders of search fields. A condition without a label
// has its help text.
var searchTexts = map[string][2]string{
	"group":        {"Group"},
	"error":        {"Error text"},
	"header":       {"Header", "name: value"},
	"until":        {"Failed before (UTC)", "2026-01-31T18:00 or 2h"},
	"min_attempts": {"Attempts, minimum"},
	"max_attempts": {"Attempts, maximum"},
	"replay":       {"Failed again after replay"},
	"refused_by":   {"Not sent by replay"},
	"sent_by":      {"Sent by replay"},
	"outcome":      {"Outcome"},
}

// sinces are the times of the form.
var sinces = []string{"1h", "24h", "7d", "30d"}

// newSearchForm returns the form for the parameters of an address.
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

// searchFields returns a field for each condition that people can type and that is not in
// the first row of the form, and the values in q that no field has.
func searchFields(q url.Values) (fields []searchField, rest url.Values) {
	rest = url.Values{}
	for _, p := range failed.FilterParams() {
		values := q[p.Name]
		switch p.Name {
		case "queue", "since", "text":
			continue
		case "state", "id": // chosen on a page
			rest[p.Name] = values
			continue
		}
		if p.Value == "" { // a flag
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

// TopNames are the names of the fields above “More filters”.
func (s *searchForm) TopNames() []string { return []string{"text", "queue", "since"} }

// names are those of the fields that the form shows.
func (s *searchForm) names() []string {
	names := s.TopNames()
	for _, f := range s.Fields {
		names = append(names, f.Name)
	}
	return names
}

// wrong is what is wrong with a field of a form; without a name, with none that is shown.
type wrong struct{ Name, Text string }

// wrongIn returns what is wrong with a filter, and the status of the page that shows it; false if the error has
// another cause. Shown are the fields that the form shows.
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

// stateOf returns the state that the address of a list is for; "" is any.
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

// Invalid returns the attributes of the field with this name.
func (w wrong) Invalid(name string) template.HTMLAttr {
	if w.Text == "" || w.Name != name {
		return ""
	}
	return template.HTMLAttr(fmt.Sprintf(` aria-invalid="true" aria-describedby="wrong-%s" autofocus`, template.HTMLEscapeString(name)))
}

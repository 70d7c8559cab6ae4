package pages

import (
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/console/internal/show"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// messageList is a page of messages with what can be done to them.
type messageList struct {
	Path     string
	Filter   failed.Filter
	Tabs     []tab
	Messages []failed.Summary
	Total    failed.Total
	Next     template.URL
	State    failed.State

	// The acts on all that is listed; "" if the list has no conditions or is empty.
	Discard, Replay, Restore template.URL

	OneGroup bool   // the error is the same for all
	None     string // what to say if there is none
}

// list looks up a page of messages.
func listMessages(c *web.Call, path string, q url.Values, f failed.Filter) (*messageList, error) {
	ctx := c.R.Context()
	messages, next, err := c.Archive.List(ctx, f, failed.Page{After: c.Params.Get("after")})
	if err != nil {
		return nil, err
	}
	total, err := c.Archive.Count(ctx, f)
	if err != nil {
		return nil, err
	}
	l := &messageList{
		Path: path, Filter: f, Messages: messages, Total: total, Next: nextPage(path, q, next),
		None: "No message is like that. Leave out a part of the search, or look at those in another state.",
	}
	if len(f.States) == 1 {
		l.State = f.States[0]
	}
	conditions := f
	conditions.States = nil
	switch acts := len(messages) > 0 && !conditions.IsZero(); {
	case acts && l.State == failed.Failed:
		l.Discard, l.Replay = web.HrefMessages("/discard", f), web.HrefMessages("/replays/new", f)
	case acts && l.State == failed.Discarded:
		l.Restore = web.HrefMessages("/restore", f)
	}
	l.Tabs = stateTabs(path, q, l.State)
	if len(f.States) > 1 {
		for i := range l.Tabs {
			l.Tabs[i].Current = false
		}
	}
	return l, nil
}

// messages searches through all there is.
func (p *Pages) messages(c *web.Call) error {
	q := web.Only(c.Params, api.FilterNames)
	f, err := c.Filter(failed.Failed)
	if err != nil {
		return err
	}
	list, err := listMessages(c, "/messages", q, f)
	if err != nil {
		return err
	}
	queues, err := c.Archive.Queues(c.R.Context())
	if err != nil {
		return err
	}
	data := struct {
		List   *messageList
		Queues []failed.QueueSummary
		Form   url.Values
		Fields []searchField
		Rest   []pair // the conditions that the form has no field for
		Since  string // one that is none of the form's
		More   bool   // a filter beyond words and queue is set
		Words  string
		Sought bool
	}{List: list, Queues: queues, Form: q}
	for name := range q {
		data.More = data.More || name != "state" && name != "queue" && name != "text" && name != "since"
	}
	data.Sought = data.More || q.Has("queue") || q.Has("text") || q.Has("since")
	var rest url.Values
	data.Fields, rest = searchFields(q)
	data.Rest = pairs(rest)
	if since := q.Get("since"); !slices.Contains([]string{"", "1h", "24h", "7d", "30d"}, since) {
		data.Since = since
	}
	words := f
	if len(words.States) == 1 {
		words.States = nil // the tab says so
	}
	data.Words = DescribeFilter(words)
	if !data.Sought && list.State == failed.Failed {
		list.None = "Nothing waits for a person. Messages come here when their worker has given them up, and their failed queue is read by “reprise up” or “reprise console”."
	}
	return render(c, http.StatusOK, "messages", page{Title: "Search", Nav: "messages", Flash: readFlash(c)}, data)
}

// searchField is a text field of the search form.
type searchField struct{ Name, Label, Kind, Placeholder, Value string }

// searchTexts are the labels and placeholders of search fields. A condition without a label
// has its help text.
var searchTexts = map[string][2]string{
	"error":        {"A part of the last error"},
	"header":       {"A header", "name: value"},
	"until":        {"Failed before (UTC)", "2026-01-31T18:00 or 2h"},
	"min_attempts": {"Attempts, at least"},
	"max_attempts": {"Attempts, at most"},
	"replay":       {"Came back from replay"},
	"refused_by":   {"Not sent by replay"},
}

// searchFields returns a field for each condition that people can type and that is not in
// the first row of the form, and the values in q that no field has.
func searchFields(q url.Values) (fields []searchField, rest url.Values) {
	rest = url.Values{}
	for _, p := range failed.FilterParams() {
		values := q[p.Name]
		switch p.Name {
		case "queue", "state", "since", "text":
			continue
		case "group", "id": // chosen on a page
			rest[p.Name] = values
			continue
		}
		if p.Value == "" { // a flag
			rest[p.Name] = values
			continue
		}
		f := searchField{Name: p.Name, Label: p.Help, Kind: "text", Value: q.Get(p.Name)}
		if texts, ok := searchTexts[p.Name]; ok {
			f.Label, f.Placeholder = texts[0], texts[1]
		}
		if p.Value == "N" || p.Value == "ID" {
			f.Kind = "number"
		}
		if len(values) > 1 {
			rest[p.Name] = values[1:]
		}
		fields = append(fields, f)
	}
	return fields, rest
}

// byID returns a handler for the thing whose number is in the path.
func byID[ID ~int64](f func(*web.Call, ID) error) func(*web.Call) error {
	return func(c *web.Call) error {
		id, err := pathInt(c, "id")
		if err != nil {
			return err
		}
		return f(c, ID(id))
	}
}

func pathInt(c *web.Call, name string) (int64, error) {
	n, err := strconv.ParseInt(c.R.PathValue(name), 10, 64)
	if err != nil || n <= 0 {
		return 0, noPage(c)
	}
	return n, nil
}

// flash says what the request before this one did. It is told by the address, so what
// it says is made here, of numbers.
func readFlash(c *web.Call) *flash {
	q := c.Params
	n, _ := strconv.ParseInt(q.Get("n"), 10, 64)
	switch q.Get("did") {
	case "discarded":
		f := &flash{Text: show.Plural(n, "message") + " discarded."}
		for _, s := range q["undo"] {
			if id, err := strconv.ParseInt(s, 10, 64); err == nil {
				f.Undo = append(f.Undo, failed.ID(id))
			}
		}
		if f.Undo == nil {
			same := web.Only(q, api.FilterNames)
			same.Set("state", string(failed.Discarded))
			f.Link, f.Linked = web.Href(c.Path(), same), "Show what is discarded"
		}
		return f
	case "restored":
		return &flash{Text: show.Plural(n, "message") + " restored."}
	case "edited":
		return &flash{Text: "The edit is kept. A replay sends it in place of the original."}
	case "reverted":
		return &flash{Text: "The edit was taken back. A replay sends the message as it failed."}
	}
	return nil
}

func messagePath(id failed.ID) string { return fmt.Sprintf("/messages/%d", id) }

// pair is a field of a form that is hidden in another.
type pair struct{ Name, Value string }

// pairs are the values of a form, sorted by name.
func pairs(v url.Values) []pair {
	var all []pair
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, value := range v[name] {
			all = append(all, pair{name, value})
		}
	}
	return all
}

// DescribeFilter returns what a filter selects, in words, and of a group also its name.
func DescribeFilter(f failed.Filter, groupName ...string) string {
	words := show.Visible(f.String())
	for _, name := range groupName {
		group := fmt.Sprintf("group %d", f.Group)
		words = strings.Replace(words, group, group+" (“"+name+"”)", 1)
	}
	return words
}

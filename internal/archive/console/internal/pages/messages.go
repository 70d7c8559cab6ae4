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

	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

// messageList is a page of messages, with links to acts.
type messageList struct {
	Path     string
	Filter   failed.Filter
	Tabs     []tab
	Messages []listed
	Total    store.Total
	Next     template.URL
	State    failed.State

	// URLs of the acts on all messages that match; "" if the list has no conditions, or if the act does not apply to the
	// state or to an empty list. Erase applies to all states.
	Discard, Replay, Restore, Erase template.URL

	OneGroup bool   // all messages have the same error
	None     string // text for an empty list
}

// listed is a message in a list.
type listed struct {
	failed.Summary
	Detail string // see store.Archive.Details
}

// listMessages returns a page of messages.
func listMessages(c *web.Call, path string, q url.Values, f failed.Filter) (*messageList, error) {
	ctx := c.R.Context()
	messages, next, err := c.Archive.List(ctx, f, store.Page{After: c.Params.Get("after")})
	if err != nil {
		return nil, err
	}
	details, err := c.Archive.Details(ctx, messages, c.Secrets())
	if err != nil {
		return nil, err
	}
	rows := make([]listed, len(messages))
	for i, m := range messages {
		rows[i] = listed{m, details[i]}
	}
	total, err := c.Archive.Count(ctx, f)
	if err != nil {
		return nil, err
	}
	l := &messageList{
		Path: path, Filter: f, Messages: rows, Total: total, Next: nextPage(path, q, next),
		None: "Remove a filter, or select another state.",
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
	if !conditions.IsZero() { // also for an empty list, because other states and hidden values can match
		l.Erase = web.HrefMessages("/erase", conditions)
	}
	l.Tabs = stateTabs(path, q, l.State)
	if len(f.States) > 1 {
		for i := range l.Tabs {
			l.Tabs[i].Current = false
		}
	}
	return l, nil
}

// messages shows the search form and the messages that match it.
func (p *Pages) messages(c *web.Call) error {
	q := web.Only(c.Params, failed.FilterNames)
	form, err := newSearchForm(c, q)
	if err != nil {
		return err
	}
	data := struct {
		*searchForm
		List  *messageList // nil: the filter is invalid
		Tabs  []tab
		Words string

		CSV, JSONLines template.URL // URLs of exports of all messages that match; "" if the user may not export them
	}{searchForm: form}
	show := func(status int) error {
		return render(c, status, "messages", page{Title: "Messages", Nav: "messages", Flash: readFlash(c)}, data)
	}
	f, err := c.Filter(failed.Failed)
	if wrong, status, ok := wrongIn(err, form.names()...); ok {
		data.Wrong, data.Tabs = wrong, stateTabs("/messages", q, stateOf(q))
		return show(status)
	}
	if err != nil {
		return err
	}
	if data.List, err = listMessages(c, "/messages", q, f); err != nil {
		return err
	}
	data.Tabs = data.List.Tabs
	data.CSV = exportHref(f, "csv")
	if len(c.Secrets()) == 0 {
		data.JSONLines = exportHref(f, "jsonl")
	}
	words := f
	if len(words.States) == 1 {
		words.States = nil // the tab shows the state
	}
	data.Words = DescribeFilter(words)
	if !data.Sought && data.List.State == failed.Failed {
		data.List.None = "Messages appear here when their retries are exhausted and “reprise up” or “reprise console” has read their failed queue."
	}
	return show(http.StatusOK)
}

// exportHref returns the URL of an export of the messages that a filter selects.
func exportHref(f failed.Filter, format string) template.URL {
	q := f.Values()
	q.Set("format", format)
	return web.Href("/api/v1/messages/export", q)
}

// byID returns a handler that calls f with the ID in the path.
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

// readFlash describes the result of the previous request. The URL contains only names and numbers, not the text
// itself, because anyone can create a link to the console.
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
			same := web.Only(q, failed.FilterNames)
			same.Set("state", string(failed.Discarded))
			f.Link, f.Linked = web.Href(c.Path(), same), "Show discarded messages"
		}
		return f
	case "restored":
		return &flash{Text: show.Plural(n, "message") + " restored."}
	case "erased":
		text := show.Plural(n, "message") + " erased."
		if left, _ := strconv.ParseInt(q.Get("left"), 10, 64); left > 0 {
			text += " Not erased: " + show.Plural(left, "message") + " of a running replay. Repeat the action when the replay has ended."
		}
		return &flash{Text: text, Link: "/audit", Linked: "Audit log"}
	case "published":
		return &flash{Text: "Message published.", Link: "/audit", Linked: "Audit log"}
	case "purged":
		text := outOf(n, q) + " saved in the archive and purged."
		return &flash{Text: text, Link: web.Href("/messages", url.Values{"state": {string(failed.Discarded)}}), Linked: "Show discarded messages"}
	case "dropped":
		return &flash{Text: outOf(n, q) + " purged and not saved.", Link: "/audit", Linked: "Audit log"}
	case "retried":
		return &flash{Text: "First message of the key retried.", Link: "/audit", Linked: "Audit log"}
	case "parked":
		return &flash{Text: show.Plural(n, "message") + " of the key parked.", Link: "/audit", Linked: "Audit log"}
	case "requested":
		return &flash{Text: "Request stored. No worker has reported its effect yet.", Link: "/audit", Linked: "Audit log"}
	case "edited":
		return &flash{Text: "Edit saved. A replay sends it in place of the original."}
	case "reverted":
		return &flash{Text: "Edit reverted. A replay sends the original."}
	}
	return nil
}

// outOf formats a number of messages. If the page showed a larger number, outOf appends that number.
func outOf(n int64, q url.Values) string {
	of, _ := strconv.ParseInt(q.Get("of"), 10, 64)
	if n < of {
		return show.Thousands(n) + " of " + show.Plural(of, "message")
	}
	return show.Plural(n, "message")
}

func messagePath(id failed.ID) string { return fmt.Sprintf("/messages/%d", id) }

// pair is a name and a value, such as a hidden field of a form.
type pair struct{ Name, Value string }

// pairs returns the values of a form, sorted by name.
func pairs(v url.Values) []pair {
	var all []pair
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, value := range v[name] {
			all = append(all, pair{name, value})
		}
	}
	return all
}

// DescribeFilter describes the messages that a filter selects. It adds the name of the group, if given.
func DescribeFilter(f failed.Filter, groupName ...string) string {
	words := brief.Visible(f.String())
	for _, name := range groupName {
		group := fmt.Sprintf("group %d", f.Group)
		words = strings.Replace(words, group, group+" (“"+name+"”)", 1)
	}
	return words
}

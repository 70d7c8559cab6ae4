package console

import (
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// groupRow is a group in a list.
type groupRow struct {
	failed.Group
	Name  string // one line
	Spark chartView
}

func groupRows(groups []failed.Group) []groupRow {
	rows := make([]groupRow, len(groups))
	for i, g := range groups {
		rows[i] = groupRow{g, groupName(g), spark(g.Trend.Hours)}
	}
	return rows
}

// groupName is what a group is called: its error, with what differs blanked.
func groupName(g failed.Group) string {
	if name := firstLine(g.Text); name != "" {
		return name
	}
	return "No error is known"
}

// groups lists groups.
func (p *pages) groups(c *call) error {
	q := only(c.params, api.GroupNames)
	for name, standard := range map[string]string{"state": string(failed.Failed), "order": string(failed.ByFailed)} {
		if !q.Has(name) {
			q.Set(name, standard)
		}
	}
	shown, err := api.ParseGroupFilter(q)
	if err != nil {
		return badRequest(err.Error(), "correct the parameter")
	}
	f := shown.Filter()
	q = shown.Values()
	groups, next, err := c.cfg.Archive.Groups(c.r.Context(), f, failed.Page{After: failed.Cursor(c.params.Get("after"))})
	if err != nil {
		return err
	}
	queues, err := c.cfg.Archive.Queues(c.r.Context())
	if err != nil {
		return err
	}
	data := struct {
		Filter failed.GroupFilter
		Order  string
		Queue  string // as a value of the form
		Groups []groupRow
		Queues []failed.QueueSummary
		Tabs   []tab
		All    template.URL // those in any state
		Next   template.URL // the next page, "" at the end
		Sought bool         // the list is a part of all there is
	}{
		Filter: f, Order: q.Get("order"), Queue: q.Get("queue"), Groups: groupRows(groups), Queues: queues,
		All: href("/groups", api.GroupFilter{}.Values()), Tabs: stateTabs("/groups", q, f.State), Next: nextPage("/groups", q, next),
		Sought: f.Queue != "" || f.Text != "",
	}
	return c.render(http.StatusOK, "groups", page{Title: "Failed groups", Nav: "groups"}, data)
}

// tab is a list narrowed to a state.
type tab struct {
	Text    string
	Href    template.URL
	State   string
	Current bool
}

// stateTabs lead to the same list with messages of other states. "" is all of them.
func stateTabs(path string, q url.Values, current failed.State) []tab {
	var tabs []tab
	for _, s := range append(failed.States(), "") {
		to := maps.Clone(q)
		t := tab{Text: string(s), State: string(s), Current: s == current}
		if s == "" {
			t.Text = "all"
		}
		to.Set("state", t.Text)
		t.Href = href(path, to)
		tabs = append(tabs, t)
	}
	return tabs
}

// nextPage is the address of the page that begins at a cursor.
func nextPage(path string, q url.Values, next failed.Cursor) template.URL {
	if next == "" {
		return ""
	}
	to := maps.Clone(q)
	to.Set("after", string(next))
	return href(path, to)
}

// group shows a group with its messages.
func (p *pages) group(c *call) error {
	ctx := c.r.Context()
	id, err := c.pathID()
	if err != nil {
		return err
	}
	g, err := c.cfg.Archive.Group(ctx, failed.GroupID(id))
	if err != nil {
		return err
	}
	f, err := c.filter(failed.Failed)
	if err != nil {
		return err
	}
	f.Group = g.ID
	span := c.params.Get("span")
	switch span {
	case "hours", "days":
	case "":
		span = "days"
		if c.cfg.Clock().Sub(g.First).Hours() < 30 {
			span = "hours"
		}
	default:
		return badRequest(fmt.Sprintf("span %q cannot be", clip(span, 80)), "write hours or days")
	}
	path := fmt.Sprintf("/groups/%d", id)
	list, err := c.list(path, only(c.params, []string{"state", "span"}), f)
	if err != nil {
		return err
	}
	list.OneGroup = true
	if list.State == failed.Failed && !c.params.Has("state") {
		list.None = "Nothing of this group waits for a person. The other tabs show what became of its messages."
	}
	spanned := func(span string) template.URL {
		q := only(c.params, []string{"state"})
		q.Set("span", span)
		return href(path, q)
	}
	waiting := failed.Filter{Group: g.ID, States: []failed.State{failed.Failed}}
	data := struct {
		Group           *failed.Group
		Name            string
		Queue           template.URL // its groups
		Hours, Days     chartView
		ByHours, ByDays template.URL
		Span            string       // "hours" or "days"
		Now             template.URL // this page
		List            *messageList
		Discard, Replay template.URL // all that is failed in the group
	}{
		Group: g, Name: groupName(*g), Queue: hrefGroups(g.Queue), Hours: hours(g.Trend), Days: days(g.Trend), Span: span, Now: spanned(span),
		ByHours: spanned("hours"), ByDays: spanned("days"), List: list,
		Discard: hrefMessages("/discard", waiting), Replay: hrefMessages("/replays/new", waiting),
	}
	return c.render(http.StatusOK, "group", page{Title: data.Name, Nav: "groups", Flash: c.flash()}, data)
}

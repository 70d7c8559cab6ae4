package pages

import (
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

// groupRow is a group in a list.
type groupRow struct {
	store.Group
	Name  string // single line
	Spark show.ChartView
}

func groupRows(groups []store.Group) []groupRow {
	rows := make([]groupRow, len(groups))
	for i, g := range groups {
		rows[i] = groupRow{g, groupName(g), show.Spark(g.Hours)}
	}
	return rows
}

// groupName returns the first line of a group's error, in which placeholders replace the variable parts.
func groupName(g store.Group) string {
	if name := show.FirstLine(g.Text); name != "" {
		return name
	}
	return "No error"
}

func (p *Pages) groups(c *web.Call) error {
	q := web.Only(c.Params, api.GroupNames)
	for name, standard := range map[string]string{"state": string(failed.Failed), "order": "failed"} {
		if !q.Has(name) {
			q.Set(name, standard)
		}
	}
	queues, err := c.Archive.Queues(c.R.Context())
	if err != nil {
		return err
	}
	data := struct {
		Form  url.Values
		Wrong wrong

		TopNames []string // names of the top fields
		Groups   []groupRow
		Queues   []store.QueueSummary
		Tabs     []tab
		All      template.URL // groups in any state
		Next     template.URL // next page; "" on the last page
		Sought   bool         // a filter applies
	}{Form: q, Queues: queues, TopNames: []string{"text", "queue", "order"}, All: web.Href("/groups", api.GroupFilter{}.Values())}
	show := func(status int) error {
		return render(c, status, "groups", page{Title: "Failed groups", Nav: "groups"}, data)
	}
	shown, err := api.ParseGroupFilter(q)
	if err != nil {
		err = fault.BadFilter(err)
	}
	if wrong, status, ok := wrongIn(err, data.TopNames...); ok {
		data.Wrong, data.Tabs = wrong, stateTabs("/groups", q, stateOf(q))
		return show(status)
	}
	f := shown.Filter()
	data.Form = shown.Values()
	groups, next, err := c.Archive.Groups(c.R.Context(), f, store.Page{After: c.Params.Get("after")})
	if err != nil {
		return err
	}
	data.Groups, data.Next = groupRows(groups), nextPage("/groups", data.Form, next)
	data.Tabs, data.Sought = stateTabs("/groups", data.Form, f.State), f.Queue != "" || f.Text != ""
	return show(http.StatusOK)
}

// tab is a link to a list for one state.
type tab struct {
	Text    string
	Href    template.URL
	State   string
	Current bool
}

// stateTabs returns a link to the list at path for each state and for all states. If current is "", the page shows all
// states.
func stateTabs(path string, q url.Values, current failed.State) []tab {
	var tabs []tab
	for _, s := range append(failed.States(), "") {
		to := maps.Clone(q)
		t := tab{Text: string(s), State: string(s), Current: s == current}
		if s == "" {
			t.Text = "all"
		}
		to.Set("state", t.Text)
		t.Href = web.Href(path, to)
		tabs = append(tabs, t)
	}
	return tabs
}

// nextPage returns the URL of the page that begins at the cursor next, or "" without a cursor.
func nextPage(path string, q url.Values, next string) template.URL {
	if next == "" {
		return ""
	}
	to := maps.Clone(q)
	to.Set("after", string(next))
	return web.Href(path, to)
}

// group shows a group with its messages.
func (p *Pages) group(c *web.Call, id failed.GroupID) error {
	ctx := c.R.Context()
	g, err := c.Archive.Group(ctx, id)
	if err != nil {
		return err
	}
	f, err := c.Filter(failed.Failed)
	if err != nil {
		return err
	}
	f.Group = g.ID
	span := c.Params.Get("span")
	switch span {
	case "hours", "days":
	case "":
		span = "days"
		if c.Clock().Sub(g.First).Hours() < 30 {
			span = "hours"
		}
	default:
		return fault.BadRequest(fmt.Sprintf("span must be hours or days: got %s", brief.Quoted(span)), "correct the parameter")
	}
	path := fmt.Sprintf("/groups/%d", id)
	list, err := listMessages(c, path, web.Only(c.Params, []string{"state", "span"}), f)
	if err != nil {
		return err
	}
	list.OneGroup = true
	if list.State == failed.Failed && !c.Params.Has("state") {
		list.None = "The other states show the messages of this group that were replayed or discarded."
	}
	spanned := func(span string) template.URL {
		q := web.Only(c.Params, []string{"state"})
		q.Set("span", span)
		return web.Href(path, q)
	}
	waiting := failed.Filter{Group: g.ID, States: []failed.State{failed.Failed}}
	data := struct {
		Group           *store.Group
		Name            string
		Muted, Forever  bool
		Queue           template.URL // groups of the queue
		Hours, Days     show.ChartView
		ByHours, ByDays template.URL
		Span            string       // "hours" or "days"
		Now             template.URL // this page
		List            *messageList
		Discard, Replay template.URL // acts on all failed messages of the group
	}{
		Group: g, Name: groupName(*g), Muted: g.MutedAt(c.Clock()), Forever: api.Forever(g.Muted), Queue: web.HrefGroups(g.Queue), Hours: show.Hours(*g), Days: show.Days(*g), Span: span, Now: spanned(span),
		ByHours: spanned("hours"), ByDays: spanned("days"), List: list,
		Discard: web.HrefMessages("/discard", waiting), Replay: web.HrefMessages("/replays/new", waiting),
	}
	return render(c, http.StatusOK, "group", page{Title: data.Name, Nav: "groups", Flash: readFlash(c)}, data)
}

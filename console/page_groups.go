package console

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/reprisemq/reprise/failed"
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
	q := c.r.URL.Query()
	f := failed.GroupFilter{Queue: q.Get("queue"), Text: q.Get("q"), State: failed.Failed}
	state := q.Get("state")
	switch {
	case state == allStates:
		f.State = ""
	case state == "":
	case slices.Contains(failed.States(), failed.State(state)):
		f.State = failed.State(state)
	default:
		return badRequest(fmt.Sprintf("state cannot be %q", clip(state, 80)), "write failed, replaying, replayed, discarded or all")
	}
	order := q.Get("order")
	if order == "" {
		order = "failed"
	}
	switch order {
	case "failed":
		f.Order = failed.ByFailed
	case "last":
		f.Order = failed.ByLast
	default:
		return badRequest(fmt.Sprintf("order cannot be %q", clip(order, 80)), "write failed or last")
	}
	groups, next, err := c.cfg.Archive.Groups(c.r.Context(), f, failed.Page{After: failed.Cursor(q.Get("after"))})
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
		Groups []groupRow
		Queues []failed.QueueSummary
		Tabs   []tab
		Next   string // address of the next page, "" at the end
		Sought bool   // the list is a part of all there is
	}{
		Filter: f, Order: order, Groups: groupRows(groups), Queues: queues,
		Tabs: stateTabs("/groups", q, f.State), Next: nextPage("/groups", q, next),
		Sought: f.Queue != "" || f.Text != "",
	}
	return c.render(http.StatusOK, "groups", page{Title: "Failed groups", Nav: "groups"}, data)
}

// tab is a list narrowed to a state.
type tab struct {
	Text, Href string
	State      string
	Current    bool
}

// stateTabs lead to the same list with messages of other states. "" is all of them.
func stateTabs(path string, q url.Values, current failed.State) []tab {
	var tabs []tab
	for _, s := range append(failed.States(), "") {
		to := url.Values{}
		for name, values := range q {
			if name != "after" && name != "state" {
				to[name] = values
			}
		}
		t := tab{Text: string(s), State: string(s), Current: s == current}
		if s == "" {
			t.Text = "all"
		}
		to.Set("state", t.Text)
		t.Href = path + "?" + to.Encode()
		tabs = append(tabs, t)
	}
	return tabs
}

// nextPage is the address of the page that begins at a cursor.
func nextPage(path string, q url.Values, next failed.Cursor) string {
	if next == "" {
		return ""
	}
	to := url.Values{}
	maps.Copy(to, q)
	to.Set("after", string(next))
	return path + "?" + to.Encode()
}

// group shows a group with its messages.
func (p *pages) group(c *call) error {
	ctx, q := c.r.Context(), c.r.URL.Query()
	id, err := c.pathID()
	if err != nil {
		return err
	}
	g, err := c.cfg.Archive.Group(ctx, failed.GroupID(id))
	if err != nil {
		return err
	}
	q.Set("group", fmt.Sprint(id))
	f, err := parseFilter(q, c.cfg.Clock())
	if err != nil {
		return err
	}
	list, err := c.list("/groups/"+fmt.Sprint(id), q, f)
	if err != nil {
		return err
	}
	list.OneGroup = true
	if len(f.States) == 1 && f.States[0] == failed.Failed && q.Get("state") == "" {
		list.None = "Nothing of this group waits for a person. The other tabs show what became of its messages."
	}
	data := struct {
		Group       *failed.Group
		Name        string
		Hours, Days chartView
		Span        string // "hours" or "days"
		List        *messageList
		All         string // the filter of all that has failed in the group
	}{Group: g, Name: groupName(*g), Hours: hours(g.Trend), Days: days(g.Trend), List: list}
	data.All = filterQuery(failed.Filter{Group: g.ID, States: []failed.State{failed.Failed}}).Encode()
	data.Span = "days"
	if q.Get("span") == "hours" || q.Get("span") == "" && c.cfg.Clock().Sub(g.First).Hours() < 30 {
		data.Span = "hours"
	}
	return c.render(http.StatusOK, "group", page{Title: data.Name, Nav: "groups", Flash: c.flash()}, data)
}

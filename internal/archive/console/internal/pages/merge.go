package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

var errNoGroups = fault.BadRequest("no groups are selected", "go back and select groups")

// askMerge shows the form that merges the selected groups.
func (p *Pages) askMerge(c *web.Call) error { return showMerge(c, http.StatusOK, c.Params, "") }

// showMerge shows the form for the groups in v. It suggests the text of the largest group as the name.
func showMerge(c *web.Call, status int, v url.Values, problem string) error {
	ids, err := groupIDs(v)
	if err != nil {
		return err
	}
	data := struct {
		Title, Name, Problem string
		Groups               []groupRow
		Back                 template.URL
	}{Title: "Merge groups", Name: v.Get("name"), Problem: problem, Back: "/groups"}
	if len(ids) == 1 {
		data.Title = "Rename group"
	}
	var groups []store.Group
	for _, id := range ids {
		g, err := c.Archive.Group(c.R.Context(), id)
		if err != nil {
			return err
		}
		groups = append(groups, *g)
	}
	data.Groups = groupRows(groups)
	if !v.Has("name") {
		data.Name = slices.MaxFunc(groups, func(a, b store.Group) int { return cmp.Compare(a.Counts.Total(), b.Counts.Total()) }).Text
	}
	return render(c, status, "merge", page{Title: data.Title, Nav: "groups"}, data)
}

func groupIDs(v url.Values) (ids []failed.GroupID, err error) {
	for _, text := range v["id"] {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 {
			return nil, fault.BadRequest(brief.Clip(text, 80)+" is not the ID of a group", "go back and select groups")
		}
		ids = append(ids, failed.GroupID(id))
	}
	if ids == nil {
		return nil, errNoGroups
	}
	return ids, nil
}

// merge merges groups. It continues after the browser has closed the connection, because many messages take some time.
func (p *Pages) merge(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	ids, err := groupIDs(v)
	if err != nil {
		return err
	}
	into, err := c.Archive.Merge(context.WithoutCancel(c.R.Context()), ids, v.Get("name"), c.Who.Actor)
	if errors.Is(err, failed.ErrInvalid) {
		return showMerge(c, http.StatusUnprocessableEntity, v, "Enter a name, and select groups of one work queue.")
	}
	if err != nil {
		return err
	}
	return c.SeeOther(fmt.Sprintf("/groups/%d", into), nil)
}

// unmerge undoes the merges into a group, and shows the groups of its work queue.
func (p *Pages) unmerge(c *web.Call, id failed.GroupID) error {
	g, err := c.Archive.Group(c.R.Context(), id)
	if err != nil {
		return err
	}
	if _, err := c.Archive.Unmerge(context.WithoutCancel(c.R.Context()), id, c.Who.Actor); err != nil {
		return err
	}
	c.Redirect(string(web.HrefGroups(g.Queue)))
	return nil
}

package console

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/failed"
)

// maxUndo is how many messages the address of a page can name, to undo what was done
// to them. More can be restored from the list of what is discarded.
const maxUndo = 200

// selection is what an act is about to be done to.
type selection struct {
	Filter failed.Filter
	Words  string
	Name   string // of the group, if it is one
	Total  failed.Total
	Fields []pair
	Back   string // where it was selected
}

// selected reads a filter from an address or a form, of messages in one state.
func (c *call) selected(v url.Values, state failed.State) (*selection, error) {
	v = maps.Clone(v)
	v["state"] = []string{string(state)}
	f, err := parseFilter(v, c.cfg.Clock())
	if err != nil {
		return nil, err
	}
	total, err := c.cfg.Archive.Count(c.r.Context(), f)
	if err != nil {
		return nil, err
	}
	s := &selection{Filter: f, Words: describeFilter(f), Total: total, Fields: pairs(filterQuery(f))}
	if f.Group != 0 {
		if g, err := c.cfg.Archive.Group(c.r.Context(), f.Group); err == nil {
			s.Name = groupName(*g)
		}
	}
	q := filterQuery(f)
	switch {
	case len(f.IDs) == 1:
		s.Back = messagePath(f.IDs[0])
	case f.Group != 0:
		s.Back = "/groups/" + strconv.FormatInt(int64(f.Group), 10)
	default:
		q.Del("id")
		s.Back = "/messages?" + q.Encode()
	}
	return s, nil
}

// asked is the selection that a page is asked for with: by its address, or by a form,
// since many messages that were picked from a list are more than an address can hold.
func (c *call) asked() (*selection, error) {
	if _, err := c.form(); err != nil {
		return nil, err
	}
	return c.selected(c.r.Form, failed.Failed)
}

// sent is the selection of a form that was sent, of messages in one state.
func (c *call) sent(state failed.State) (*selection, url.Values, error) {
	v, err := c.form()
	if err != nil {
		return nil, nil, err
	}
	s, err := c.selected(v, state)
	return s, v, err
}

// discardForm asks for the reason.
func (p *pages) discardForm(c *call) error {
	s, err := c.asked()
	if err != nil {
		return err
	}
	return c.showDiscard(http.StatusOK, s, "")
}

func (c *call) showDiscard(status int, s *selection, problem string) error {
	data := struct {
		*selection
		Problem string
	}{s, problem}
	return c.render(status, "discard", page{Title: "Discard", Nav: "messages"}, data)
}

// discard drops what is selected.
func (p *pages) discard(c *call) error {
	s, v, err := c.sent(failed.Failed)
	if err != nil {
		return err
	}
	reason := strings.TrimSpace(v.Get("reason"))
	if reason == "" {
		return c.showDiscard(http.StatusUnprocessableEntity, s, "Write down why: whoever looks for these messages will want to know.")
	}
	n, err := c.cfg.Archive.Discard(c.r.Context(), s.Filter, reason, c.who.actor)
	if err != nil {
		return err
	}
	path, q := back(s.Back)
	q.Set("did", "discarded")
	q.Set("n", strconv.FormatInt(n, 10))
	if len(s.Filter.IDs) <= maxUndo {
		for _, id := range s.Filter.IDs {
			q.Add("undo", strconv.FormatInt(int64(id), 10))
		}
	}
	return c.seeOther(path, q)
}

// restore undoes it.
func (p *pages) restore(c *call) error {
	s, _, err := c.sent(failed.Discarded)
	if err != nil {
		return err
	}
	n, err := c.cfg.Archive.Restore(c.r.Context(), s.Filter, c.who.actor)
	if err != nil {
		return err
	}
	path, q := back(s.Back)
	q.Del("state") // they are not where they were
	q.Set("did", "restored")
	q.Set("n", strconv.FormatInt(n, 10))
	return c.seeOther(path, q)
}

// back splits an address of our own making.
func back(address string) (path string, q url.Values) {
	path, query, _ := strings.Cut(address, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		q = url.Values{}
	}
	return path, q
}

package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// maxUndo is how many messages the address of a page can name, to undo what was done
// to them. More can be restored from the list of what is discarded.
const maxUndo = 200

// selection is what an act is about to be done to.
type selection struct {
	Filter failed.Filter // of messages in one state
	Words  string
	N      int64  // how many there are
	Fields []pair // for the form that confirms it
	Back   template.URL

	path  string     // of Back
	query url.Values // of Back
}

// selected reads the selection of messages in one state from an address or a form.
func (c *call) selected(v url.Values, state failed.State) (*selection, error) {
	asked, err := api.ParseSelection(only(v, api.SelectionNames), c.cfg.Clock())
	if err != nil {
		return nil, badRequest(err.Error(), "nothing was changed: go back and select messages again")
	}
	f := asked.Selected()
	switch {
	case f.All:
	case f.States == nil, len(f.States) == 1 && f.States[0] == state:
		f.States = []failed.State{state}
	default:
		return nil, badRequest("only messages in state "+string(state)+" can be selected here", "leave the state out")
	}
	if err := c.cfg.Archive.Check(c.r.Context(), f); err != nil {
		return nil, err
	}
	s := &selection{Filter: f}
	if s.N, err = c.count(f, state); err != nil {
		return nil, err
	}
	asked = api.Selection{Filter: api.FilterOf(f), All: f.All, AtMost: s.N}
	s.Fields = pairs(asked.Values())
	words := f
	words.States = nil // it is that of the act
	if f.Group != 0 {
		g, err := c.cfg.Archive.Group(c.r.Context(), f.Group)
		if err != nil {
			return nil, err
		}
		words.Queue = cmp.Or(words.Queue, g.Queue)
		s.Words = describeFilter(words, groupName(*g))
	} else {
		s.Words = describeFilter(words)
	}
	s.back()
	return s, nil
}

// back sets the page on which the messages were selected.
func (s *selection) back() {
	f := s.Filter
	f.AtMost = 0
	group := failed.Filter{Group: f.Group, States: f.States}
	s.path, s.query = "/messages", api.FilterOf(f).Values()
	switch {
	case len(f.IDs) == 1:
		s.path, s.query = messagePath(f.IDs[0]), url.Values{}
	case f.IDs != nil:
		s.query = api.FilterOf(failed.Filter{States: f.States}).Values()
	case f.Group != 0 && string(hrefMessages("", f)) == string(hrefMessages("", group)):
		s.path, s.query = fmt.Sprintf("/groups/%d", f.Group), url.Values{"state": s.query["state"]}
	}
	s.Back = href(s.path, s.query)
}

// count counts the messages of an act exactly, unless that takes too long.
func (c *call) count(f failed.Filter, state failed.State) (int64, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), maxLooking)
	defer cancel()
	n, err := c.cfg.Archive.CountState(ctx, f, state)
	if err != nil && ctx.Err() != nil && c.r.Context().Err() == nil {
		return 0, &failure{
			status: http.StatusServiceUnavailable, text: "the messages are too many to be counted in " + maxLooking.String(),
			advice: "narrow the search, or use the command “reprise failed”",
		}
	}
	return n, err
}

// asked is the selection that a page is asked for with: by its address, or by a form,
// since many messages that were picked from a list are more than an address can hold.
func (c *call) asked(state failed.State) (*selection, error) {
	if c.r.Method != http.MethodPost {
		return c.selected(c.params, state)
	}
	v, err := c.form()
	if err != nil {
		return nil, err
	}
	if !v.Has("id") {
		return nil, badRequest("no messages are picked", "go back and pick some")
	}
	return c.selected(v, state)
}

// sent is the selection of a form that was sent, of messages in one state. Unless the
// messages are named one by one, the form says how many it showed.
func (c *call) sent(state failed.State) (*selection, url.Values, error) {
	v, err := c.form()
	if err != nil {
		return nil, nil, err
	}
	s, err := c.selected(v, state)
	if err != nil {
		return nil, nil, err
	}
	if s.Filter.AtMost == 0 && s.Filter.IDs == nil {
		return nil, nil, badRequest("the form does not say how many messages it showed (at_most)", "open the page again, and confirm there")
	}
	return s, v, nil
}

// grown says that an act was refused since it would be done to more messages than the form
// showed, and brings the selection up to date. It returns "" for any other error.
func (c *call) grown(s *selection, v url.Values, state failed.State, err error) (string, *selection, error) {
	if !errors.Is(err, failed.ErrState) || s.Filter.AtMost == 0 {
		return "", s, err
	}
	now, err := c.selected(v, state)
	if err != nil {
		return "", s, err
	}
	return fmt.Sprintf("This page showed %s. By now there are %s, so nothing was changed. Look at them again before you confirm.",
		plural(s.Filter.AtMost, "message"), thousands(now.N)), now, nil
}

// discardForm asks for the reason.
func (p *pages) discardForm(c *call) error {
	s, err := c.asked(failed.Failed)
	if err != nil {
		return err
	}
	return c.showDiscard(http.StatusOK, s, "", "")
}

func (c *call) showDiscard(status int, s *selection, reason, problem string) error {
	data := struct {
		*selection
		Reason  string
		Missing bool // it is the reason that is wrong
		Problem string
	}{s, reason, reason == "", problem}
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
		return c.showDiscard(http.StatusUnprocessableEntity, s, "", "Write down why: whoever looks for these messages will want to know.")
	}
	n, err := c.cfg.Archive.Discard(c.r.Context(), s.Filter, reason, c.who.actor)
	if err != nil {
		problem, now, err := c.grown(s, v, failed.Failed, err)
		if problem != "" {
			return c.showDiscard(http.StatusConflict, now, reason, problem)
		}
		return err
	}
	q := s.query
	q.Set("did", "discarded")
	q.Set("n", strconv.FormatInt(n, 10))
	// Undo is for the messages that this has discarded. If somebody else has discarded some of
	// them first, nobody knows which.
	if ids := len(s.Filter.IDs); ids <= maxUndo && int64(ids) == n {
		for _, id := range s.Filter.IDs {
			q.Add("undo", strconv.FormatInt(int64(id), 10))
		}
	}
	return c.seeOther(s.path, q)
}

// restoreForm asks whether to restore what is selected.
func (p *pages) restoreForm(c *call) error {
	s, err := c.asked(failed.Discarded)
	if err != nil {
		return err
	}
	return c.showRestore(http.StatusOK, s, "")
}

func (c *call) showRestore(status int, s *selection, problem string) error {
	data := struct {
		*selection
		Problem string
	}{s, problem}
	return c.render(status, "restore", page{Title: "Restore", Nav: "messages"}, data)
}

// restore undoes it.
func (p *pages) restore(c *call) error {
	s, v, err := c.sent(failed.Discarded)
	if err != nil {
		return err
	}
	n, err := c.cfg.Archive.Restore(c.r.Context(), s.Filter, c.who.actor)
	if err != nil {
		problem, now, err := c.grown(s, v, failed.Discarded, err)
		if problem != "" {
			return c.showRestore(http.StatusConflict, now, problem)
		}
		return err
	}
	q := s.query
	q.Del("state") // they are not where they were
	q.Set("did", "restored")
	q.Set("n", strconv.FormatInt(n, 10))
	return c.seeOther(s.path, q)
}

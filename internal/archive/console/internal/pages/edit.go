package pages

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/reprisemq/reprise/internal/archive/console/internal/editor"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// editForm shows a form with the content that a replay would currently send.
func (p *Pages) editForm(c *web.Call, id failed.ID) error {
	m, err := editable(c, id)
	if err != nil {
		return err
	}
	return showEdit(c, &edition{M: m, Base: m, Seen: m.Revision, Form: editor.NewEditForm(m)})
}

// edition is a message and the state of its form.
type edition struct {
	M    *failed.Message // current message
	Base *failed.Message // the message at the revision on which the form is based
	Seen int             // latest revision that the user has seen
	Form *editor.EditFormView

	Problem error
	Theirs  *store.Revision // concurrent edit by another user; nil: none
}

// edit processes the form. It shows the differences, saves the edit, or saves the edit and begins a replay.
func (p *Pages) edit(c *web.Call, id failed.ID) error {
	e, v, err := readEdition(c, id)
	if err != nil {
		return err
	}
	content, err := e.Form.Content(e.Base)
	if err != nil {
		e.Problem = err
		return showEdit(c, e)
	}
	do := v.Get("do")
	if do != "save" && do != "replay" || e.moved() {
		return showEdit(c, e)
	}
	to, err := keepEdit(c, do, e, content)
	if errors.Is(err, failed.ErrState) {
		// Another act has changed the message. If it was an edit, the page shows both edits.
		e, _, again := readEdition(c, id)
		switch {
		case again != nil:
			return again
		case e.moved():
			return showEdit(c, e)
		}
	}
	if err != nil {
		return err
	}
	return c.SeeOther(to, url.Values{"did": {"edited"}})
}

// keepEdit saves content as the content that a replay sends, and begins a replay if the parameter do is "replay". It
// returns the URL of the next page.
func keepEdit(c *web.Call, do string, e *edition, content failed.Content) (to string, err error) {
	if do == "replay" {
		r, err := c.EditAndReplay(e.M.ID, e.Seen, content, failed.Plan{})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("/replays/%d", r.ID), nil
	}
	return messagePath(e.M.ID), c.Archive.Edit(c.R.Context(), e.M.ID, e.Seen, content, c.Who.Actor)
}

// readEdition reads the message in the URL and the submitted form.
func readEdition(c *web.Call, id failed.ID) (*edition, url.Values, error) {
	m, err := editable(c, id)
	if err != nil {
		return nil, nil, err
	}
	v, err := c.Form()
	if err != nil {
		return nil, nil, err
	}
	seen, err := revisionIn(v, "revision")
	if err != nil {
		return nil, nil, err
	}
	base, err := revisionIn(v, "base")
	if err != nil {
		return nil, nil, err
	}
	e := &edition{M: m, Base: m, Seen: seen}
	if base != m.Revision {
		if e.Base, err = atRevision(c, m, base); err != nil {
			return nil, nil, err
		}
	}
	e.Form = editor.ReadEditForm(v, e.Base)
	return e, v, nil
}

func revisionIn(v url.Values, name string) (int, error) {
	n, err := strconv.Atoi(v.Get(name))
	if err != nil || n < 0 {
		return 0, fault.BadRequest("form must contain the revision of the message", "open the form again")
	}
	return n, nil
}

// atRevision returns m with the content of a revision, where 0 is the original. It returns errHidden if the revision
// contains secrets that the visitor may not see.
func atRevision(c *web.Call, m *failed.Message, revision int) (*failed.Message, error) {
	was := *m
	was.Revision, was.Edited = revision, nil
	if revision == 0 {
		return &was, nil
	}
	r, hidden, err := c.Revision(m.ID, revision)
	if err != nil {
		return nil, err
	}
	if hidden {
		return nil, errHidden
	}
	was.Edited = &r.Content
	return &was, nil
}

func (e *edition) moved() bool { return e.Seen != e.M.Revision }

// revert undoes all edits of a message.
func (p *Pages) revert(c *web.Call, id failed.ID) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	seen, err := revisionIn(v, "revision")
	if err != nil {
		return err
	}
	if err := c.Archive.Revert(c.R.Context(), id, seen, c.Who.Actor); err != nil {
		return err
	}
	return c.SeeOther(messagePath(id), url.Values{"did": {"reverted"}})
}

// editable returns the message with the given ID, or an error if the user cannot edit the message.
func editable(c *web.Call, id failed.ID) (*failed.Message, error) {
	m, hidden, err := c.Message(id)
	if err != nil {
		return nil, err
	}
	if m.State != failed.Failed {
		return nil, &fault.Failure{
			Status: http.StatusConflict, Text: fmt.Sprintf("message %d is %s", m.ID, m.State),
			Advice: "only a failed message can be edited: cancel its replay, or restore it",
		}
	}
	if hidden {
		return nil, errHidden
	}
	return m, nil
}

var errHidden = &fault.Failure{
	Status: http.StatusForbidden, Text: "this message contains secrets that you may not see, and your edit would overwrite them",
	Advice: "ask a user with the role admin to edit the message, or replay it unchanged",
}

// showEdit shows the form and the differences from the original. If the message has been edited in the meantime,
// showEdit instead shows the differences from the latest edit.
func showEdit(c *web.Call, e *edition) error {
	isLive := c.R.Header.Get("HX-Request") != "" // the page requests only the differences
	data := struct {
		*edition
		Problem  string
		Revision int // revision that this page shows to the user
		Diff     *editor.EditDiff
		Broken   bool // the original is valid JSON, and the edit is not
		Unsaved  bool // the form was submitted and not saved
	}{edition: e, Revision: e.M.Revision, Unsaved: c.R.Method == http.MethodPost}
	status := http.StatusOK
	content, err := e.Form.Content(e.Base)
	switch {
	case e.Problem != nil:
		status, data.Problem = http.StatusUnprocessableEntity, sentence(e.Problem.Error())
	case err == nil:
		from := e.M.Content
		if e.moved() {
			status = http.StatusConflict
		}
		if e.moved() || e.Base.Revision != e.M.Revision {
			from = e.M.Current()
			if e.Theirs, err = latest(c, e.M); err != nil {
				return err
			}
		}
		d := editor.Compare(from, content)
		data.Diff = &d
		data.Broken = json.Valid(e.M.Content.Body) && !json.Valid(content.Body)
	}
	if isLive {
		status = http.StatusOK // the user asked for a check, so a problem is a result
	}
	return render(c, status, "edit", page{Title: fmt.Sprintf("Edit message %d", e.M.ID), Nav: "groups"}, data)
}

// latest returns the latest edit of a message. If all edits were reverted, the result is an empty Revision.
func latest(c *web.Call, m *failed.Message) (*store.Revision, error) {
	edits, err := c.Archive.Edits(c.R.Context(), m.ID)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(edits, func(e store.Revision) bool { return e.Number == m.Revision })
	if i < 0 {
		return &store.Revision{}, nil
	}
	return &edits[i], nil
}

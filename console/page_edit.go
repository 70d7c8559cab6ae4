package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"

	"github.com/reprisemq/reprise/failed"
)

// editForm shows a form with what a replay would send now.
func (p *pages) editForm(c *call) error {
	m, err := c.editable()
	if err != nil {
		return err
	}
	return c.showEdit(m, newEditForm(m), nil)
}

// edit takes the form: to show what is different, or to keep it, or to replay it too.
func (p *pages) edit(c *call) error {
	m, err := c.editable()
	if err != nil {
		return err
	}
	v, err := c.form()
	if err != nil {
		return err
	}
	form := readEditForm(v, m)
	content, problem := form.content(m)
	do := v.Get("do")
	if problem != nil || do != "save" && do != "replay" {
		return c.showEdit(m, form, problem)
	}
	ctx := c.r.Context()
	if !sameContent(content, m.Current()) {
		if sameContent(content, m.Content) {
			err = c.Archive.Revert(ctx, m.ID, c.who.actor)
		} else {
			err = c.Archive.Edit(ctx, m.ID, content, c.who.actor)
		}
		if err != nil {
			return err
		}
	}
	if do == "save" {
		return c.seeOther(messagePath(m.ID), url.Values{"did": {"edited"}})
	}
	replay, err := c.begin(failed.Plan{Filter: failed.Filter{IDs: []failed.ID{m.ID}}})
	if err != nil {
		return err
	}
	return c.seeOther(fmt.Sprintf("/replays/%d", replay.ID), nil)
}

// revert takes an edit back.
func (p *pages) revert(c *call) error {
	id, err := c.pathID()
	if err != nil {
		return err
	}
	if err := c.Archive.Revert(c.r.Context(), failed.ID(id), c.who.actor); err != nil {
		return err
	}
	return c.seeOther(messagePath(failed.ID(id)), url.Values{"did": {"reverted"}})
}

// editable is the message in the address, if whoever asks can edit it.
func (c *call) editable() (*failed.Message, error) {
	m, hidden, err := c.messageInPath()
	if err != nil {
		return nil, err
	}
	if m.State != failed.Failed {
		return nil, &failure{
			status: http.StatusConflict, text: fmt.Sprintf("message %d is %s", m.ID, m.State),
			advice: "only a message that waits for a person can be edited: cancel its replay, or restore it",
		}
	}
	if hidden {
		return nil, &failure{
			status: http.StatusForbidden, text: "this message contains secrets that you may not see, so that an edit of yours would overwrite them",
			advice: "ask somebody with the role admin to edit it; you can replay it as it is",
		}
	}
	return m, nil
}

func sameContent(a, b failed.Content) bool {
	return bytes.Equal(a.Body, b.Body) && reflect.DeepEqual(a.Properties, b.Properties) &&
		(len(a.Headers) == 0 && len(b.Headers) == 0 || reflect.DeepEqual(a.Headers, b.Headers))
}

func (c *call) showEdit(m *failed.Message, form *editFormView, problem error) error {
	data := struct {
		M       *failed.Message
		Form    *editFormView
		Problem string
		Diff    *editDiff
		Broken  bool // it was JSON, and is not
	}{M: m, Form: form}
	status := http.StatusOK
	if problem != nil {
		status, data.Problem = http.StatusUnprocessableEntity, sentence(problem.Error())
		if c.r.Header.Get("HX-Request") != "" {
			status = http.StatusOK // a problem is what was asked about
		}
	} else if content, err := form.content(m); err == nil {
		d := compare(m.Content, content)
		data.Diff = &d
		data.Broken = json.Valid(m.Content.Body) && !json.Valid(content.Body)
	}
	return c.render(status, "edit", page{Title: fmt.Sprintf("Edit message %d", m.ID), Nav: "groups"}, data)
}

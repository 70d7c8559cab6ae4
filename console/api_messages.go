package console

import (
	"net/http"
	"strconv"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

func (c *call) apiMessages() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	p, err := c.page()
	if err != nil {
		return err
	}
	summaries, next, err := c.cfg.Archive.List(c.r.Context(), f, p)
	if err != nil {
		return err
	}
	return c.ok(api.Messages{Messages: convert(summaries, api.SummaryOf), Next: string(next)})
}

func (c *call) apiCount() error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	total, err := c.cfg.Archive.Count(c.r.Context(), f)
	if err != nil {
		return err
	}
	return c.ok(api.Total(total))
}

func (c *call) apiMessage() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	return c.showMessage(failed.ID(id))
}

func (c *call) showMessage(id failed.ID) error {
	m, isRedacted, err := c.message(id)
	if err != nil {
		return err
	}
	shown := api.MessageOf(m)
	shown.Redacted = isRedacted
	return c.ok(shown)
}

// apiBody answers with the bytes of the body that a replay would send, or
// with ?original=true those that arrived, to be kept in a file.
func (c *call) apiBody() error {
	content, err := c.bodyContent(c.messageByID)
	if err != nil {
		return err
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="message-`+c.r.PathValue("id")+`"`)
	h.Set("Content-Length", strconv.Itoa(len(content.Body)))
	_, _ = c.w.Write(content.Body)
	return nil
}

func (c *call) apiRevisions() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	edits, err := c.cfg.Archive.Edits(c.r.Context(), failed.ID(id))
	if err != nil {
		return err
	}
	return c.ok(api.Revisions{Revisions: convert(edits, api.RevisionSummaryOf)})
}

func (c *call) apiRevision() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	number, err := c.pathNumber("number")
	if err != nil {
		return err
	}
	r, isRedacted, err := c.revision(failed.ID(id), int(number))
	if err != nil {
		return err
	}
	return c.ok(api.Revision{RevisionSummary: api.RevisionSummaryOf(r.Edit), Content: api.ContentOf(r.Content), Redacted: isRedacted})
}

func (c *call) apiDiff() error {
	m, _, err := c.messageByID()
	if err != nil {
		return err
	}
	if m.Edited == nil {
		return c.ok(api.Diff{})
	}
	return c.ok(difference(m.Content, *m.Edited))
}

func (c *call) apiEdit() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	var e api.Edit
	if err := c.read(&e); err != nil {
		return err
	}
	content, err := c.edited(failed.ID(id), e)
	if err != nil {
		return err
	}
	if err := c.cfg.Archive.Edit(c.r.Context(), failed.ID(id), *e.Revision, content, c.who.actor); err != nil {
		return err
	}
	return c.apiMessage()
}

// apiEditAndReplay edits a message and begins to replay it, or does neither.
func (c *call) apiEditAndReplay() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	var e api.EditAndReplay
	if err := c.read(&e); err != nil {
		return err
	}
	content, err := c.edited(failed.ID(id), e.Edit)
	if err != nil {
		return err
	}
	r, err := c.editAndReplay(failed.ID(id), *e.Revision, content, api.Plan{To: e.To}.Plan())
	if err != nil {
		return err
	}
	return c.write(http.StatusCreated, api.ReplayOf(*r))
}

func (c *call) apiRevert() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	revision := c.params.Get("revision")
	seen, err := strconv.Atoi(revision)
	if err != nil {
		return badRequest("revision "+strconv.Quote(revision)+" cannot be", "write revision= and that of the message that you have seen, so that nobody's edit is lost")
	}
	if err := c.cfg.Archive.Revert(c.r.Context(), failed.ID(id), seen, c.who.actor); err != nil {
		return err
	}
	return c.showMessage(failed.ID(id))
}

func (c *call) messageByID() (m *failed.Message, isRedacted bool, err error) {
	id, err := c.id()
	if err != nil {
		return nil, false, err
	}
	return c.message(failed.ID(id))
}

// bodyContent is the content of a message that a replay would send, or with ?original=true
// the one that arrived.
func (c *call) bodyContent(message func() (*failed.Message, bool, error)) (failed.Content, error) {
	original, err := c.flag("original")
	if err != nil {
		return failed.Content{}, err
	}
	m, _, err := message()
	if err != nil {
		return failed.Content{}, err
	}
	if original {
		return m.Content, nil
	}
	return m.Current(), nil
}

// convert returns what is shown of a list: never null.
func convert[From, To any](list []From, show func(From) To) []To {
	shown := make([]To, len(list))
	for i, v := range list {
		shown[i] = show(v)
	}
	return shown
}

var errSecret = &failure{
	status: http.StatusForbidden,
	text:   "this would change a secret that you may not see",
	advice: "send hidden headers as they are shown, and leave a body out that has hidden parts; or ask an admin",
}

package jsonapi

import (
	"net/http"
	"strconv"

	"github.com/reprisemq/reprise/console/internal/fault"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

func messages(c *web.Call) error {
	f, err := c.Filter()
	if err != nil {
		return err
	}
	p, err := c.Page()
	if err != nil {
		return err
	}
	summaries, next, err := c.Archive.List(c.R.Context(), f, p)
	if err != nil {
		return err
	}
	return c.OK(api.Messages{Messages: convert(summaries, api.SummaryOf), Next: string(next)})
}

func count(c *web.Call) error {
	f, err := c.Filter()
	if err != nil {
		return err
	}
	total, err := c.Archive.Count(c.R.Context(), f)
	if err != nil {
		return err
	}
	return c.OK(api.Total(total))
}

func message(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	return showMessage(c, failed.ID(id))
}

func showMessage(c *web.Call, id failed.ID) error {
	m, isRedacted, err := c.Message(id)
	if err != nil {
		return err
	}
	shown := api.MessageOf(m)
	shown.Redacted = isRedacted
	return c.OK(shown)
}

// body answers with the bytes of the body that a replay would send, or
// with ?original=true those that arrived, to be kept in a file.
func body(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	content, err := c.BodyContent(failed.ID(id))
	if err != nil {
		return err
	}
	h := c.W.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="message-`+c.R.PathValue("id")+`"`)
	h.Set("Content-Length", strconv.Itoa(len(content.Body)))
	_, _ = c.W.Write(content.Body)
	return nil
}

func revisions(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	edits, err := c.Archive.Edits(c.R.Context(), failed.ID(id))
	if err != nil {
		return err
	}
	return c.OK(api.Revisions{Revisions: convert(edits, api.RevisionSummaryOf)})
}

func revision(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	number, err := pathNumber(c, "number")
	if err != nil {
		return err
	}
	r, isRedacted, err := c.Revision(failed.ID(id), int(number))
	if err != nil {
		return err
	}
	return c.OK(api.Revision{RevisionSummary: api.RevisionSummaryOf(r.Edit), Content: api.ContentOf(r.Content), Redacted: isRedacted})
}

func diff(c *web.Call) error {
	m, _, err := messageByID(c)
	if err != nil {
		return err
	}
	if m.Edited == nil {
		return c.OK(api.Diff{})
	}
	return c.OK(difference(m.Content, *m.Edited))
}

func edit(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	var e api.Edit
	if err := c.Read(&e); err != nil {
		return err
	}
	content, err := c.Edited(failed.ID(id), e)
	if err != nil {
		return err
	}
	if err := c.Archive.Edit(c.R.Context(), failed.ID(id), *e.Revision, content, c.Who.Actor); err != nil {
		return err
	}
	return message(c)
}

// editAndReplay edits a message and begins to replay it, or does neither.
func editAndReplay(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	var e api.EditAndReplay
	if err := c.Read(&e); err != nil {
		return err
	}
	content, err := c.Edited(failed.ID(id), e.Edit)
	if err != nil {
		return err
	}
	r, err := c.EditAndReplay(failed.ID(id), *e.Revision, content, api.Plan{To: e.To}.Plan())
	if err != nil {
		return err
	}
	return c.Write(http.StatusCreated, api.ReplayOf(*r))
}

func revert(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	revision := c.Params.Get("revision")
	seen, err := strconv.Atoi(revision)
	if err != nil {
		return fault.BadRequest("revision "+strconv.Quote(revision)+" cannot be", "write revision= and that of the message that you have seen, so that nobody's edit is lost")
	}
	if err := c.Archive.Revert(c.R.Context(), failed.ID(id), seen, c.Who.Actor); err != nil {
		return err
	}
	return showMessage(c, failed.ID(id))
}

func messageByID(c *web.Call) (m *failed.Message, isRedacted bool, err error) {
	id, err := id(c)
	if err != nil {
		return nil, false, err
	}
	return c.Message(failed.ID(id))
}

// convert returns what is shown of a list: never null.
func convert[From, To any](list []From, to func(From) To) []To {
	shown := make([]To, len(list))
	for i, v := range list {
		shown[i] = to(v)
	}
	return shown
}

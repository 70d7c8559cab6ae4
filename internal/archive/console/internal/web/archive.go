package web

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// MaxEditPreviewed is the maximum number of messages that a page previews.
const MaxEditPreviewed = 5000

// Begin begins a replay and wakes the Replayer. It refuses an edit with which the replay would send no message.
func (c *Call) Begin(plan failed.Plan) (*failed.Replay, error) {
	plan = c.withoutHiddenSecrets(plan)
	if plan.Edit != nil {
		v, err := c.PreviewEdit(plan, MaxEditPreviewed)
		if err != nil {
			return nil, err
		}
		if v.SendsNone(plan.Edit) {
			return nil, fault.BadRequest(EditSendsNone, "correct the edit, or send unchanged messages; a preview shows the reasons")
		}
	}
	return c.runReplay(func() (*failed.Replay, error) {
		r, err := c.Archive.BeginReplay(c.R.Context(), plan, c.Who.Actor)
		if errors.Is(err, failed.ErrNotFound) { // callers have checked that the objects in the filter exist
			return nil, &fault.Failure{
				Status: http.StatusUnprocessableEntity, Text: "no selected message is in state failed",
				Advice: "nothing was changed: see the list of messages",
			}
		}
		return r, err
	})
}

// withoutHiddenSecrets returns plan. If the visitor may not see secrets, the edit in the returned plan does not apply
// to messages that contain secrets.
func (c *Call) withoutHiddenSecrets(plan failed.Plan) failed.Plan {
	if plan.Edit != nil {
		edit := *plan.Edit
		edit.SpareSecrets = c.Who.Role < access.Admin
		plan.Edit = &edit
	}
	return plan
}

// EditSendsNone is the reason why a replay with an edit does not begin.
const EditSendsNone = "the edit changes none of the selected messages, so the replay would send none"

// PreviewEdit returns the effect of a plan's edit on at most limit messages, as the visitor may see it.
func (c *Call) PreviewEdit(plan failed.Plan, limit int) (store.EditPreview, error) {
	return c.Archive.PreviewEdit(c.R.Context(), c.withoutHiddenSecrets(plan), limit)
}

// EditAndReplay edits a message and begins its replay. It fails if seen is no longer the current revision of the
// message.
func (c *Call) EditAndReplay(id failed.ID, seen int, content failed.Content, plan failed.Plan) (*failed.Replay, error) {
	return c.runReplay(func() (*failed.Replay, error) {
		return c.Archive.EditAndReplay(c.R.Context(), id, seen, content, plan, c.Who.Actor)
	})
}

func (c *Call) runReplay(begin func() (*failed.Replay, error)) (*failed.Replay, error) {
	if c.Replayer == nil {
		return nil, &fault.Failure{
			Status: http.StatusServiceUnavailable, Text: "this console is not connected to a broker",
			Advice: "start it with a broker: reprise console --url URL",
		}
	}
	r, err := begin()
	if err != nil {
		return nil, err
	}
	c.Replayer.Wake()
	return r, nil
}

// maxMute is the maximum number of seconds after which a mute ends automatically. A longer mute is indefinite.
const maxMute = 100 * 365 * 24 * 3600

// Mute mutes a group for a number of seconds. If seconds is 0 or exceeds maxMute, the group stays muted until it is
// unmuted.
func (c *Call) Mute(id failed.GroupID, seconds int64) error {
	until := store.MutedForever
	if seconds > 0 && seconds <= maxMute {
		until = c.Archive.Config().Clock().Add(time.Duration(seconds) * time.Second)
	}
	return c.Archive.Mute(c.R.Context(), id, until, c.Who.Actor)
}

// Accept accepts the discrepancy of an account, records the reason, and restarts the account.
func (c *Call) Accept(account, reason string) error {
	switch {
	case c.Ledger == nil:
		return &fault.Failure{Status: 404, Text: "ledger not found", Advice: "start the console with the URL of the broker's management API"}
	case strings.TrimSpace(reason) == "":
		return fault.BadRequest("reason must not be empty", `send "reason" with the cause of the discrepancy`)
	}
	err := c.Ledger.Accept(c.R.Context(), account, c.Who.Actor, reason)
	switch {
	case errors.Is(err, ledger.ErrNoAccount):
		return &fault.Failure{Status: 404, Text: "account not found", Advice: "the page Ledger lists the accounts"}
	case errors.Is(err, ledger.ErrTooEarly):
		return &fault.Failure{Status: 409, Text: "the account does not have enough samples to restart", Advice: "nothing was changed: try again in a minute"}
	}
	return err
}

// SendBody sends the current body of a message as a file or, with ?original=true, the original body.
func (c *Call) SendBody(id failed.ID, extension string) error {
	original, err := c.Flag("original")
	if err != nil {
		return err
	}
	m, _, err := c.Message(id)
	if err != nil {
		return err
	}
	content := m.Current()
	if original {
		content = m.Content
	}
	h := c.W.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="message-%d%s"`, id, extension))
	h.Set("Content-Length", strconv.Itoa(len(content.Body)))
	_, _ = c.W.Write(content.Body)
	return nil
}

var errSecret = &fault.Failure{
	Status: http.StatusForbidden,
	Text:   "this edit would change a secret that you may not see",
	Advice: "send hidden headers unchanged, and omit a body with hidden parts; or ask an admin",
}

// Secrets returns the rules that hide data from the visitor. Admins have no such rules.
func (c *Call) Secrets() []failed.Rule {
	if c.Who.Role >= access.Admin {
		return nil
	}
	return c.Archive.Config().Redact
}

// Message returns a message as the visitor may see it, and reports whether parts are hidden.
func (c *Call) Message(id failed.ID) (m *failed.Message, isRedacted bool, err error) {
	m, err = c.Archive.Get(c.R.Context(), id)
	rules := c.Secrets()
	if err != nil || len(rules) == 0 {
		return m, false, err
	}
	shown := m.Redact(rules)
	return shown, hides(shown.Content, m.Content) || m.Edited != nil && hides(*shown.Edited, *m.Edited), nil
}

func hides(shown, whole failed.Content) bool {
	return !bytes.Equal(shown.Body, whole.Body) || !tablejson.Equal(shown.Headers, whole.Headers)
}

// Revision returns an edit as the visitor may see it, and reports whether parts are hidden.
func (c *Call) Revision(id failed.ID, number int) (r *store.Revision, isRedacted bool, err error) {
	r, err = c.Archive.Revision(c.R.Context(), id, number)
	rules := c.Secrets()
	if err != nil || len(rules) == 0 {
		return r, false, err
	}
	shown := *r
	shown.Content = r.Content.Redact(rules)
	return &shown, hides(shown.Content, r.Content), nil
}

// Edited returns the content of a message after the edit e. It fails if the edit would change secrets that the visitor
// may not see.
func (c *Call) Edited(id failed.ID, e api.Edit) (content failed.Content, err error) {
	if e.Revision == nil {
		return content, fault.BadRequest("revision must not be empty", `send "revision" with the revision of the message that you have read, so that no edit is lost`)
	}
	m, err := c.Archive.Get(c.R.Context(), id)
	if err != nil {
		return content, err
	}
	content = m.Current()
	shown, rules := content, c.Secrets()
	if len(rules) > 0 {
		shown = shown.Redact(rules)
	}
	if e.Body != nil && e.Text != nil {
		return content, fault.BadRequest("body and text must not both be set", "send one of them")
	}
	body := shown.Body
	switch {
	case e.Body != nil:
		body = *e.Body
	case e.Text != nil:
		body = []byte(*e.Text)
	}
	if !bytes.Equal(body, shown.Body) {
		if !bytes.Equal(shown.Body, content.Body) {
			return content, errSecret
		}
		content.Body = body
	}
	if e.Headers != nil {
		if content.Headers, err = unhide(topology.Table(*e.Headers), shown.Headers, content.Headers); err != nil {
			return content, err
		}
	}
	if e.Properties != nil {
		headers := content.Properties.Zero & reprise.PropertyHeaders
		content.Properties = e.Properties.Properties()
		content.Properties.Zero |= headers
	}
	// The rules for a body can depend on the message properties, which the edit may have changed.
	if !bytes.Equal(shown.Body, m.Current().Body) && !bytes.Equal(content.Redact(rules).Body, shown.Body) {
		return content, errSecret
	}
	if content, err = m.Current().EditedTo(content); err != nil {
		return content, &fault.Failure{
			Status: http.StatusUnprocessableEntity, Text: fmt.Sprintf("cannot edit message %d: %s", m.ID, err),
			Advice: "publish a corrected message from a program that has the key",
		}
	}
	return content, nil
}

// unhide restores hidden values in sent, the headers that a visitor submitted. The parameter shown is the redacted copy
// of whole that the visitor saw. In the result, the values in whole replace the values that were hidden. unhide fails
// if the visitor changed a hidden value.
func unhide(sent, shown, whole topology.Table) (topology.Table, error) {
	merged := make(topology.Table, len(sent))
	maps.Copy(merged, sent)
	for name, secret := range whole {
		if tablejson.Equal(shown[name], secret) {
			continue
		}
		if tablejson.Equal(sent[name], shown[name]) {
			merged[name] = secret
			continue
		}
		sentTable, ok1 := sent[name].(topology.Table)
		shownTable, ok2 := shown[name].(topology.Table)
		wholeTable, ok3 := secret.(topology.Table)
		if !ok1 || !ok2 || !ok3 {
			return nil, errSecret
		}
		t, err := unhide(sentTable, shownTable, wholeTable)
		if err != nil {
			return nil, err
		}
		merged[name] = t
	}
	return merged, nil
}

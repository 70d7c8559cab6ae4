package console

import (
	"bytes"
	"maps"
	"reflect"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
	"github.com/reprisemq/reprise/topology"
)

// secrets are the rules that hide something from whoever asks; none for an admin.
func (c *call) secrets() []failed.Rule {
	if c.who.role >= Admin {
		return nil
	}
	return c.cfg.Archive.Config().Redact
}

// message returns a message as whoever asks may see it, and whether there is more.
func (c *call) message(id failed.ID) (m *failed.Message, isRedacted bool, err error) {
	m, err = c.cfg.Archive.Get(c.r.Context(), id)
	rules := c.secrets()
	if err != nil || len(rules) == 0 {
		return m, false, err
	}
	shown := failed.Redact(m, rules)
	return shown, hides(shown.Content, m.Content) || m.Edited != nil && hides(*shown.Edited, *m.Edited), nil
}

func hides(shown, whole failed.Content) bool {
	return !bytes.Equal(shown.Body, whole.Body) || !reflect.DeepEqual(shown.Headers, whole.Headers)
}

// revision returns an edit as whoever asks may see it, and whether there is more.
func (c *call) revision(id failed.ID, number int) (r *failed.Revision, isRedacted bool, err error) {
	r, err = c.cfg.Archive.Revision(c.r.Context(), id, number)
	rules := c.secrets()
	if err != nil || len(rules) == 0 {
		return r, false, err
	}
	shown := failed.Revision{Edit: r.Edit, Content: failed.RedactContent(r.Content, rules)}
	return &shown, hides(shown.Content, r.Content), nil
}

// edited is a message as e has it. Secrets stay as they are.
func (c *call) edited(id failed.ID, e api.Edit) (content failed.Content, err error) {
	if e.Revision == nil {
		return content, badRequest("there is no revision", `send "revision": that of the message that you have seen, so that nobody's edit is lost`)
	}
	m, err := c.cfg.Archive.Get(c.r.Context(), id)
	if err != nil {
		return content, err
	}
	content = m.Current()
	shown, rules := content, c.secrets()
	if len(rules) > 0 {
		shown = failed.RedactContent(shown, rules)
	}
	if e.Body != nil && e.Text != nil {
		return content, badRequest("there is a body and a text", "send one of them")
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
		content.Properties = e.Properties.Properties()
	}
	// That a body has secrets can depend on what its properties say that it is.
	if !bytes.Equal(shown.Body, m.Current().Body) && !bytes.Equal(failed.RedactContent(content, rules).Body, shown.Body) {
		return content, errSecret
	}
	return content, nil
}

// unhide returns the headers that somebody sent who was shown only a part of whole:
// with what was hidden put back. It must have come back as it was shown.
func unhide(sent, shown, whole topology.Table) (topology.Table, error) {
	merged := make(topology.Table, len(sent))
	maps.Copy(merged, sent)
	for name, secret := range whole {
		if reflect.DeepEqual(shown[name], secret) {
			continue
		}
		if reflect.DeepEqual(sent[name], shown[name]) {
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

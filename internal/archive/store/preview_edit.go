package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// storedEdit is the value of the column {replay}.edit.
type storedEdit struct {
	failed.BulkEdit
	Headers string        `json:"set_headers,omitempty"`    // SetHeaders with their types
	Remove  []params.Text `json:"remove_headers,omitempty"` // RemoveHeaders, which need not be UTF-8
}

func encodeEdit(e *failed.BulkEdit) (text sql.NullString, err error) {
	if e == nil {
		return text, nil
	}
	stored := storedEdit{BulkEdit: *e}
	if len(e.SetHeaders) > 0 {
		if stored.Headers, err = failed.EncodeTable(e.SetHeaders); err != nil {
			return text, err
		}
	}
	for _, name := range e.RemoveHeaders {
		stored.Remove = append(stored.Remove, params.Text(name))
	}
	written, err := json.Marshal(stored)
	return sql.NullString{String: string(written), Valid: true}, err
}

func decodeEdit(text sql.NullString) (*failed.BulkEdit, error) {
	if !text.Valid {
		return nil, nil
	}
	var stored storedEdit
	if err := json.Unmarshal([]byte(text.String), &stored); err != nil {
		return nil, err
	}
	if stored.Headers != "" {
		var err error
		if stored.SetHeaders, err = failed.DecodeTable(stored.Headers); err != nil {
			return nil, err
		}
	}
	for _, name := range stored.Remove {
		stored.RemoveHeaders = append(stored.RemoveHeaders, string(name))
	}
	return &stored.BulkEdit, nil
}

// sentBase is a message that a replay has sent, and the revision to which the replay applied its edit.
type sentBase struct {
	message failed.ID
	base    int
}

// recordEdits adds a revision for each message that a replay has sent with an edit. It applies the edit again, because
// reports, which can be the first proof that a message was sent, do not contain the content. The result is the same,
// because neither the base nor the edit has changed.
func (t *tx) recordEdits(id failed.ReplayID, sent []sentBase) error {
	var text sql.NullString
	var who []byte
	err := t.Row(`SELECT edit, actor FROM {replay} WHERE id = $1`, int64(id)).Scan(&text, &who)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !text.Valid {
		return nil
	}
	if err != nil {
		return err
	}
	e, err := decodeEdit(text)
	if err != nil {
		return err
	}
	x, err := e.Compile(nil) // rules only matter for SpareSecrets, and messages that it excludes were not sent
	if err != nil {
		return err
	}
	for _, s := range sent {
		if err := t.recordEdit(id, x, s, who); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) recordEdit(id failed.ReplayID, x *failed.Editor, s sentBase, who []byte) error {
	w, err := t.revision(s.message, s.base)
	if errors.Is(err, sql.ErrNoRows) { // the message was removed
		return nil
	}
	if err != nil {
		return err
	}
	c, err := contentFrom(w.body, w.headers, w.properties)
	if err != nil {
		return err
	}
	c, err = x.Apply(c)
	if err != nil { // the message was sent without the edit
		return nil
	}
	if w.headers, w.properties, err = encodeContent(c); err != nil {
		return err
	}
	number, err := t.nextRevision(s.message)
	if err != nil {
		return err
	}
	err = t.insert("{revision}", revisionColumns, "", [][]any{{
		int64(s.message), number, sqlkit.Millis(t.Now()), who, w.headers, w.properties, append([]byte{}, c.Body...), int64(id),
	}})
	if err != nil {
		return err
	}
	// Since it was sent, the message may have changed its state or become part of a later replay.
	_, err = t.Exec(`UPDATE {message} SET edited = $2 WHERE id = $1 AND state = 2 AND replay = $3`, int64(s.message), number, int64(id))
	return err
}

// EditPreview describes the effect of a BulkEdit on the messages of a plan.
type EditPreview struct {
	Changed    int64
	Unchanged  int64
	Impossible int64
	Reasons    []EditReason // reasons why the edit is not possible, in descending order of the number of messages
	Samples    []EditSample // at most 5 changed, 1 unchanged, and 1 for each of the first 5 reasons found
	More       bool         // whether the preview does not cover all selected messages
}

// EditReason is a reason why an edit is not possible, with the number of affected messages.
type EditReason struct {
	Why      string
	Messages int64
}

// EditSample shows the effect of an edit on one message. After is the edited content. If the edit has no effect or is
// not possible, After is nil and Why is the reason.
type EditSample struct {
	ID            failed.ID
	Before, After *failed.Content
	Why           string
}

// SendsNone reports whether the edit prevents the replay from sending any of the selected messages.
func (v EditPreview) SendsNone(e *failed.BulkEdit) bool {
	return v.Changed == 0 && !v.More && v.Unchanged+v.Impossible > 0 && (v.Unchanged == 0 || !e.SendUnchanged) && (v.Impossible == 0 || !e.SendImpossible)
}

// Limits of a preview.
const (
	maxSamples      = 5
	maxPreviewBytes = 256 << 20
)

// PreviewEdit applies the edit of a plan to failed messages that the plan selects, and returns the effect. It does not
// change the archive. It covers at most limit messages, the oldest first, and stops after 256 MiB of bodies. If limit
// is 0, it covers all messages, regardless of their size. Before and After are nil for messages that
// BulkEdit.SpareSecrets excludes.
func (a *Archive) PreviewEdit(ctx context.Context, p failed.Plan, limit int) (v EditPreview, err error) {
	defer failed.Annotate(&err, "cannot preview an edit")
	if err := p.Validate(); err != nil {
		return v, err
	}
	if p.Edit == nil {
		return v, failed.Invalid("Plan.Edit must not be nil")
	}
	x, err := p.Edit.Compile(a.cfg.Redact)
	if err != nil {
		return v, err
	}
	f := p.Filter
	f.All, f.States = false, []failed.State{failed.Failed}
	reasons := map[string]int64{}
	bytes := 0
	for m, err := range a.Each(ctx, f) {
		if err != nil {
			return v, err
		}
		if limit > 0 && (v.Changed+v.Unchanged+v.Impossible == int64(limit) || bytes > maxPreviewBytes) {
			v.More = true
			break
		}
		bytes += len(m.Content.Body)
		before := m.Current()
		after, err := x.Apply(before)
		sample := EditSample{ID: m.ID}
		if err != failed.ErrSecrets {
			sample.Before = &before
		}
		isSample := false
		switch err {
		case nil:
			v.Changed++
			sample.After = &after
			isSample = v.Changed <= maxSamples
		case failed.ErrUnchanged:
			v.Unchanged++
			sample.Why = err.Error()
			isSample = v.Unchanged == 1
		default:
			v.Impossible++
			sample.Why = err.Error()
			reasons[sample.Why]++
			isSample = reasons[sample.Why] == 1 && len(reasons) <= maxSamples
		}
		if isSample {
			v.Samples = append(v.Samples, sample)
		}
	}
	for why, n := range reasons {
		v.Reasons = append(v.Reasons, EditReason{why, n})
	}
	slices.SortFunc(v.Reasons, func(a, b EditReason) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Why, b.Why))
	})
	slices.SortStableFunc(v.Samples, func(a, b EditSample) int { return cmp.Compare(rankOf(a), rankOf(b)) })
	return v, nil
}

// rankOf returns the sort key of a sample: 0 if the edit changes the message, 1 if it has no effect, 2 if it is not
// possible.
func rankOf(s EditSample) int {
	switch {
	case s.After != nil:
		return 0
	case s.Why == failed.ErrUnchanged.Error():
		return 1
	}
	return 2
}

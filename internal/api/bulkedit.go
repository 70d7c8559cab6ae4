package api

import (
	"encoding/json"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/topology"
)

// BulkEdit changes all messages of a replay in the same way, when they are sent.
type BulkEdit struct {
	Patch          json.RawMessage `json:"patch,omitempty"` // JSON Patch, RFC 6902
	Replace        []Replacement   `json:"replace,omitempty"`
	SetHeaders     Headers         `json:"set_headers,omitempty"`
	RemoveHeaders  []Text          `json:"remove_headers,omitempty"`
	SendUnchanged  bool            `json:"send_unchanged,omitempty"`  // send also messages that it does not change
	SendImpossible bool            `json:"send_impossible,omitempty"` // send messages for which it is not possible as they are
}

// Replacement is a text to replace in a body.
type Replacement struct {
	Old    string `json:"old"`
	New    string `json:"new"`
	Regexp bool   `json:"regexp,omitempty"` // old is a regular expression in the syntax of RE2; $1 in new is its first group
}

// BulkEdit returns it as package failed has it; nil, if there is none.
func (e *BulkEdit) BulkEdit() *failed.BulkEdit {
	if e == nil {
		return nil
	}
	edit := &failed.BulkEdit{
		Patch: string(e.Patch), SetHeaders: topology.Table(e.SetHeaders), SendUnchanged: e.SendUnchanged, SendImpossible: e.SendImpossible,
	}
	for _, r := range e.Replace {
		edit.Replace = append(edit.Replace, failed.Replacement(r))
	}
	for _, name := range e.RemoveHeaders {
		edit.RemoveHeaders = append(edit.RemoveHeaders, string(name))
	}
	return edit
}

// BulkEditOf returns an edit as it is shown; nil, if there is none.
func BulkEditOf(e *failed.BulkEdit) *BulkEdit {
	if e == nil {
		return nil
	}
	shown := &BulkEdit{Patch: json.RawMessage(e.Patch), SetHeaders: Headers(e.SetHeaders), SendUnchanged: e.SendUnchanged, SendImpossible: e.SendImpossible}
	for _, r := range e.Replace {
		shown.Replace = append(shown.Replace, Replacement(r))
	}
	for _, name := range e.RemoveHeaders {
		shown.RemoveHeaders = append(shown.RemoveHeaders, Text(name))
	}
	return shown
}

// EditPreview is what a bulk edit would do.
type EditPreview struct {
	Changed    int64        `json:"changed"`
	Unchanged  int64        `json:"unchanged"`
	Impossible int64        `json:"impossible"`
	Reasons    []EditReason `json:"reasons"` // why it is not possible; the most messages first
	Samples    []EditSample `json:"samples"`
	More       bool         `json:"more,omitempty"` // more messages are selected than were looked at
}

// EditReason is why an edit is not possible for some messages.
type EditReason struct {
	Why      string `json:"why"`
	Messages int64  `json:"messages"`
}

// EditSample is a message that an edit would change, with the difference, or would not, and why.
type EditSample struct {
	ID   int64  `json:"id"`
	Diff *Diff  `json:"diff,omitempty"`
	Why  string `json:"why,omitempty"`
}

// EditPreviewOf returns a preview as it is shown, without its samples.
func EditPreviewOf(v failed.EditPreview) EditPreview {
	shown := EditPreview{Changed: v.Changed, Unchanged: v.Unchanged, Impossible: v.Impossible, Reasons: []EditReason{}, Samples: []EditSample{}, More: v.More}
	for _, r := range v.Reasons {
		shown.Reasons = append(shown.Reasons, EditReason(r))
	}
	return shown
}

package api

import (
	"encoding/json"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// BulkEdit changes all messages of a replay in the same way when the replay sends them.
type BulkEdit struct {
	Patch          json.RawMessage `json:"patch,omitempty"` // JSON Patch, RFC 6902
	Replace        []Replacement   `json:"replace,omitempty"`
	SetHeaders     Headers         `json:"set_headers,omitempty"`
	RemoveHeaders  []Text          `json:"remove_headers,omitempty"`
	SendUnchanged  bool            `json:"send_unchanged,omitempty"`  // also send messages that the edit does not change
	SendImpossible bool            `json:"send_impossible,omitempty"` // send messages that the edit cannot change, without the edit
}

// Replacement replaces all occurrences of a string in a body.
type Replacement struct {
	Old    string `json:"old"`
	New    string `json:"new"`
	Regexp bool   `json:"regexp,omitempty"` // Old is a regular expression in RE2 syntax; $1 in New is its first submatch
}

// BulkEdit converts e to a [failed.BulkEdit]. The result is nil if e is nil.
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

// BulkEditOf converts an edit to its JSON form. The result is nil if e is nil.
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

// EditPreview describes the effect of a bulk edit.
type EditPreview struct {
	Changed    int64        `json:"changed"`
	Unchanged  int64        `json:"unchanged"`
	Impossible int64        `json:"impossible"`
	Reasons    []EditReason `json:"reasons"` // why messages cannot be edited, most frequent reason first
	Samples    []EditSample `json:"samples"`
	More       bool         `json:"more,omitempty"` // the preview did not inspect all selected messages
}

// EditReason is a reason why an edit is impossible, and the number of messages that it affects.
type EditReason struct {
	Why      string `json:"why"`
	Messages int64  `json:"messages"`
}

// EditSample contains the changes to a sample message, or the reason why the edit does not change it.
type EditSample struct {
	ID   int64  `json:"id"`
	Diff *Diff  `json:"diff,omitempty"`
	Why  string `json:"why,omitempty"`
}

// EditPreviewOf converts a preview to its JSON form, without the samples.
func EditPreviewOf(v store.EditPreview) EditPreview {
	shown := EditPreview{Changed: v.Changed, Unchanged: v.Unchanged, Impossible: v.Impossible, Reasons: []EditReason{}, Samples: []EditSample{}, More: v.More}
	for _, r := range v.Reasons {
		shown.Reasons = append(shown.Reasons, EditReason(r))
	}
	return shown
}

package pages

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/console/internal/editor"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// bulkEditNames are the names of the edit fields in the replay form. The field previewed contains the digest of the
// edit whose preview the page showed.
var bulkEditNames = []string{"patch", "find", "with", "regexp", "set_name", "set_value", "remove", "send_unchanged", "send_impossible", "previewed"}

// readBulkEdit reads the edit from the replay form. It returns nil if the form contains no edit.
func readBulkEdit(v url.Values) (*failed.BulkEdit, wrong) {
	parts := []struct {
		name string
		edit failed.BulkEdit
	}{
		{"patch", failed.BulkEdit{Patch: strings.TrimSpace(v.Get("patch"))}},
		{"find", failed.BulkEdit{}},
		{"set_name", failed.BulkEdit{}},
		{"remove", failed.BulkEdit{}},
	}
	if v.Get("find") != "" {
		parts[1].edit.Replace = []failed.Replacement{{Old: v.Get("find"), New: v.Get("with"), Regexp: v.Get("regexp") != ""}}
	}
	if v.Get("set_name") != "" {
		parts[2].edit.SetHeaders = topology.Table{v.Get("set_name"): v.Get("set_value")}
	}
	if v.Get("remove") != "" {
		parts[3].edit.RemoveHeaders = []string{v.Get("remove")}
	}
	switch {
	case v.Get("find") == "" && (v.Get("with") != "" || v.Get("regexp") != ""):
		return nil, wrong{"find", "Enter the text to replace."}
	case v.Get("set_name") == "" && v.Get("set_value") != "":
		return nil, wrong{"set_name", "Enter the name of the header."}
	}
	edit := failed.BulkEdit{SendUnchanged: v.Get("send_unchanged") != "", SendImpossible: v.Get("send_impossible") != ""}
	isEdit := false
	for _, p := range parts {
		if p.edit.String() == "" {
			continue
		}
		isEdit = true
		if err := p.edit.Validate(); err != nil {
			return nil, wrong{p.name, sentence(err.Error())}
		}
	}
	edit.Patch, edit.Replace, edit.SetHeaders, edit.RemoveHeaders = parts[0].edit.Patch, parts[1].edit.Replace, parts[2].edit.SetHeaders, parts[3].edit.RemoveHeaders
	switch {
	case isEdit:
		if err := edit.Validate(); err != nil {
			return nil, wrong{"remove", sentence(err.Error())}
		}
		return &edit, wrong{}
	case edit.SendUnchanged || edit.SendImpossible:
		return nil, wrong{"patch", "Enter a patch, a text or a header."}
	}
	return nil, wrong{}
}

// digestOf returns a digest that identifies an edit, or "" without an edit.
func digestOf(e *failed.BulkEdit) string {
	if e == nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v %#v %#v %#v %t %t", e.Patch, e.Replace, e.SetHeaders, e.RemoveHeaders, e.SendUnchanged, e.SendImpossible))
	return hex.EncodeToString(sum[:16])
}

// editPreview is the effect of an edit, prepared for a page.
type editPreview struct {
	store.EditPreview
	Digest                        string
	Looked                        int64
	SendUnchanged, SendImpossible bool
	Samples                       []editSample
}

type editSample struct {
	ID   failed.ID
	Why  string
	Diff *editor.EditDiff // nil if the message does not change
}

// showEditPreview shows the replay form with a preview of the edit.
func showEditPreview(c *web.Call, status int, s *selection, form url.Values, plan failed.Plan, problem string) error {
	v, err := c.PreviewEdit(plan, web.MaxEditPreviewed)
	if err != nil {
		return err
	}
	shown := &editPreview{
		EditPreview: v, Digest: digestOf(plan.Edit), Looked: v.Changed + v.Unchanged + v.Impossible,
		SendUnchanged: plan.Edit.SendUnchanged, SendImpossible: plan.Edit.SendImpossible,
	}
	if v.SendsNone(plan.Edit) { // without a digest, the form shows the preview of the corrected edit first
		status, shown.Digest = http.StatusUnprocessableEntity, ""
		problem = cmp.Or(problem, sentence(web.EditSendsNone)+" Correct the edit, or select “Send unchanged” or “Send unedited”.")
	}
	for _, x := range v.Samples {
		sample := editSample{ID: x.ID, Why: x.Why}
		if x.After != nil {
			d := editor.Compare(*x.Before, *x.After)
			sample.Diff = &d
		}
		shown.Samples = append(shown.Samples, sample)
	}
	return showReplayForm(c, status, s, replayForm{Form: form, Problem: problem, Edit: shown})
}

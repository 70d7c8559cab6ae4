package failedcmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/brief"
)

// bulkEditFlags contains the flags that edit all messages of a replay.
type bulkEditFlags struct {
	Patch          *string  `placeholder:"JSON" help:"JSON Patch (RFC 6902) for each body. @FILE reads the patch from a file."`
	Replace        []string `sep:"none" placeholder:"TEXT" help:"Text to replace in each body. Repeatable, with one --with each."`
	With           []string `sep:"none" placeholder:"TEXT" help:"New text for --replace. Repeatable."`
	Regexp         bool     `help:"Use --replace as a regular expression (RE2). $$1 in --with inserts its first group."`
	SetHeader      []string `name:"set-header" sep:"none" placeholder:"K=V" help:"Header to set in each message: name=text, or name:=JSON. Repeatable."`
	RemoveHeader   []string `name:"remove-header" sep:"none" placeholder:"NAME" help:"Header to remove from each message. Repeatable."`
	SendUnchanged  bool     `name:"send-unchanged" help:"Also send messages that the edit does not change."`
	SendImpossible bool     `name:"send-impossible" help:"Also send messages that the edit cannot change."`
}

// edit returns the edit, or nil if no flag specifies an edit.
func (f *bulkEditFlags) edit() (*api.BulkEdit, error) {
	if !f.edits() {
		switch {
		case len(f.With) > 0 || f.Regexp:
			return nil, exit.Usagef("--with and --regexp require --replace TEXT")
		case f.SendUnchanged || f.SendImpossible:
			return nil, exit.Usagef("--send-unchanged and --send-impossible require an edit (use --patch, --replace, --set-header or --remove-header)")
		}
		return nil, nil
	}
	e := &api.BulkEdit{SendUnchanged: f.SendUnchanged, SendImpossible: f.SendImpossible}
	if f.Patch != nil {
		text := []byte(*f.Patch)
		if path, isFile := strings.CutPrefix(*f.Patch, "@"); isFile {
			var err error
			if text, err = os.ReadFile(path); err != nil {
				return nil, exit.Usagef("--patch: %w", err)
			}
		}
		if !json.Valid(text) {
			return nil, exit.Usagef("--patch must be a JSON array of operations, or @FILE: got %s", brief.Quoted(string(text)))
		}
		e.Patch = bytes.TrimSpace(text)
	}
	if len(f.Replace) != len(f.With) {
		return nil, exit.Usagef("each --replace requires one --with: got --replace %s, --with %s", times(len(f.Replace)), times(len(f.With)))
	}
	for i, old := range f.Replace {
		e.Replace = append(e.Replace, api.Replacement{Old: old, New: f.With[i], Regexp: f.Regexp})
	}
	set, err := flags.Headers(f.SetHeader)
	if err != nil {
		return nil, err
	}
	e.SetHeaders = api.Headers(set)
	for _, name := range f.RemoveHeader {
		e.RemoveHeaders = append(e.RemoveHeaders, api.Text(name))
	}
	if err := e.BulkEdit().Validate(); err != nil {
		return nil, exit.Usage(err)
	}
	return e, nil
}

// edits reports whether the flags specify an edit.
func (f *bulkEditFlags) edits() bool {
	return f.Patch != nil || len(f.Replace)+len(f.SetHeader)+len(f.RemoveHeader) > 0
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// editPreviewText describes the effect of an edit, with samples.
func editPreviewText(v *api.EditPreview, e *api.BulkEdit) string {
	if v == nil {
		return ""
	}
	var b strings.Builder
	what := func(n int64, send bool) string {
		switch {
		case send:
			return "sent unedited"
		case n == 1:
			return "stays failed"
		}
		return "stay failed"
	}
	if v.More {
		fmt.Fprintf(&b, "Sample: the oldest %d messages\n", v.Changed+v.Unchanged+v.Impossible)
	}
	fmt.Fprintf(&b, "  %d edited\n", v.Changed)
	if v.Unchanged > 0 {
		fmt.Fprintf(&b, "  %d unchanged by the edit: %s\n", v.Unchanged, what(v.Unchanged, e.SendUnchanged))
	}
	for _, r := range v.Reasons {
		fmt.Fprintf(&b, "  %d cannot be edited, %s: %s\n", r.Messages, terminal.OneLine(r.Why), what(r.Messages, e.SendImpossible))
	}
	for _, s := range v.Samples {
		if s.Diff == nil {
			fmt.Fprintf(&b, "message %d: %s\n", s.ID, terminal.OneLine(s.Why))
			continue
		}
		fmt.Fprintf(&b, "message %d:\n", s.ID)
		for _, part := range []string{s.Diff.Body, s.Diff.Headers, s.Diff.Properties} {
			for line := range strings.Lines(part) {
				if !strings.HasPrefix(line, "--- original") && !strings.HasPrefix(line, "+++ edited") && !strings.HasPrefix(line, "@@") && !strings.HasPrefix(line, `\ No newline`) {
					b.WriteString("  " + terminal.OneLine(strings.TrimSuffix(line, "\n")) + "\n")
				}
			}
		}
	}
	return b.String()
}

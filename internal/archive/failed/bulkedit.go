package failed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/jsonpatch"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// BulkEdit changes all messages of a replay in the same way. When the replay sends a message, it applies the steps to
// Message.Current, in the order of the fields below. The result depends only on the message and the edit. Therefore a
// message that is sent again after a crash has the same bytes.
//
// An edit changes a message completely or not at all. An edit of the body is not possible if the body
//
//   - is encoded (Properties.ContentEncoding),
//   - is not JSON (for Patch) or not UTF-8 (for Replace),
//   - lacks a path that Patch needs or a string of Replace, or fails a test of Patch,
//   - has more than 10,000 matches of a regular expression,
//   - would no longer be JSON, or
//   - would grow to more than 16 MiB.
//
// By default, the replay does not send messages for which the edit is not possible or has no effect. These messages
// return to state failed, with the reason in Message.Refused.
//
// The archive keeps the original. When the archive records that an edited message was sent, it stores the sent content
// as a Revision.
type BulkEdit struct {
	// Patch is a JSON Patch (RFC 6902) for the body. All bytes outside the patched values stay unchanged. If a name in
	// a path occurs twice in the same object, the edit is not possible. Default: no patch.
	Patch string `json:"patch,omitempty"`

	// Replace lists the strings to replace in the body, in this order. Each must occur at least once, and every
	// occurrence is replaced. If a string does not occur in a JSON body, it also matches other white space between
	// the tokens, because users copy it from a formatted body.
	Replace []Replacement `json:"replace,omitempty"`

	// SetHeaders lists headers to add or replace. RemoveHeaders lists the names of headers to remove, if present.
	// Headers that belong to Reprise or the broker, such as CC, are not permitted.
	SetHeaders    topology.Table `json:"-"`
	RemoveHeaders []string       `json:"remove_headers,omitempty"`

	// SendUnchanged also sends messages that the edit does not change. SendImpossible also sends messages for which
	// the edit is not possible. Both send the content without the edit.
	SendUnchanged  bool `json:"send_unchanged,omitempty"`
	SendImpossible bool `json:"send_impossible,omitempty"`

	// SpareSecrets excludes all messages that contain a secret according to Config.Redact. A user who must not see a
	// secret could otherwise copy it with the edit, or derive it from the number of changed messages. SendImpossible
	// does not apply to these messages.
	SpareSecrets bool `json:"spare_secrets,omitempty"`
}

// Replacement specifies a text to replace in a body.
type Replacement struct {
	Old    string `json:"old"`              // the text, or a regular expression in RE2 syntax
	New    string `json:"new"`              // if Regexp is set, $1 is the first submatch, and $$ a dollar sign
	Regexp bool   `json:"regexp,omitempty"` // whether Old is a regular expression
}

// Limits of a BulkEdit.
const (
	maxEditText     = 64 << 10 // total size of the patch and the texts
	maxReplacements = 20
	maxMatches      = 10_000   // matches of a regular expression in a body
	maxEditResult   = 16 << 20 // maximum size of an edited body, unless the original is larger
)

// Validate returns ErrInvalid if the edit is empty or invalid.
func (e *BulkEdit) Validate() error {
	_, err := e.Compile(nil)
	return err
}

// String summarizes the edit. The summary does not contain the replaced or inserted texts.
func (e *BulkEdit) String() string {
	var parts []string
	if e.Patch != "" {
		parts = append(parts, "JSON Patch")
	}
	if n := len(e.Replace); n > 0 {
		parts = append(parts, pluralize(n, "text replacement"))
	}
	if n := len(e.SetHeaders); n > 0 {
		parts = append(parts, pluralize(n, "header")+" set")
	}
	if n := len(e.RemoveHeaders); n > 0 {
		parts = append(parts, pluralize(n, "header")+" removed")
	}
	return strings.Join(parts, ", ")
}

func pluralize(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Editor is a compiled BulkEdit.
type Editor struct {
	*BulkEdit
	patch   *jsonpatch.Patch // nil: no patch
	regexps []*regexp.Regexp // parallel to Replace; an element is nil if Old is literal
	set     topology.Table   // SetHeaders, with the types that the archive returns
	secrets []Rule
}

func (e *BulkEdit) Compile(secrets []Rule) (*Editor, error) {
	invalid := func(format string, args ...any) (*Editor, error) {
		return nil, Invalid(format, args...)
	}
	x := &Editor{BulkEdit: e, secrets: secrets}
	if e.Patch == "" && len(e.Replace)+len(e.SetHeaders)+len(e.RemoveHeaders) == 0 {
		return invalid("edit must not be empty (set a patch, a text or a header)")
	}
	size := len(e.Patch)
	if e.Patch != "" {
		p, err := jsonpatch.Parse([]byte(e.Patch))
		if err != nil {
			return invalid("patch: %w", err)
		}
		x.patch = p
	}
	if n := len(e.Replace); n > maxReplacements {
		return invalid("an edit must have at most %d texts to replace: got %d", maxReplacements, n)
	}
	for _, r := range e.Replace {
		size += len(r.Old) + len(r.New)
		switch {
		case r.Old == "":
			return invalid("a text to replace must not be empty")
		case !utf8.ValidString(r.Old + r.New):
			return invalid("a text to replace must be UTF-8")
		}
		var compiled *regexp.Regexp
		if r.Regexp {
			var err error
			if compiled, err = regexp.Compile(r.Old); err != nil {
				return invalid("%w", err)
			}
			if compiled.MatchString("") {
				return invalid("regular expression %s must not match an empty text", brief.Quoted(r.Old))
			}
			if err := checkTemplate(compiled, r.New); err != nil {
				return invalid("%w", err)
			}
		}
		x.regexps = append(x.regexps, compiled)
	}
	if size > maxEditText {
		return invalid("patch and texts must have at most %d bytes: got %d", maxEditText, size)
	}
	names := append(slices.Collect(maps.Keys(e.SetHeaders)), e.RemoveHeaders...)
	slices.Sort(names)
	for i, name := range names {
		switch {
		case name == "" || len(name) > 255:
			return invalid("header %s must have a name of 1 to 255 bytes", brief.Quoted(name))
		case i > 0 && name == names[i-1]:
			return invalid("header %s must not be listed twice", brief.Quoted(name))
		case strings.HasPrefix(name, "x-reprise-") || isAttemptHeader(name, nil) || name == "CC" || name == "BCC":
			return invalid("header %s must not be edited (it belongs to Reprise or the broker)", brief.Quoted(name))
		}
	}
	text, err := EncodeTable(e.SetHeaders)
	if err != nil {
		return invalid("%w", err)
	}
	x.set, err = DecodeTable(text)
	return x, err
}

var reference = regexp.MustCompile(`\$\$|\$(\w+)|\$\{(\w*)\}`)

// checkTemplate returns an error if the template refers to a group that x does not have. Package regexp would silently
// replace such a reference with an empty text. For example, $1x refers to a group named 1x.
func checkTemplate(x *regexp.Regexp, template string) error {
	for _, m := range reference.FindAllStringSubmatch(template, -1) {
		name := m[1] + m[2]
		if n, err := strconv.Atoi(name); m[0] == "$$" || err == nil && n <= x.NumSubexp() || err != nil && name != "" && x.SubexpIndex(name) >= 0 {
			continue
		}
		return fmt.Errorf("group %s does not exist in the regular expression (write ${1}x for group 1 before an x, and $$ for a dollar)", brief.Quoted(m[0]))
	}
	return nil
}

// ErrUneditable matches every error of type uneditable.
var ErrUneditable = errors.New("not edited")

// uneditable is the reason why an edit is not possible or has no effect. Its text contains no part of the message
// except the content encoding, so that equal problems can be counted.
type uneditable string

func (e uneditable) Error() string        { return string(e) }
func (e uneditable) Is(target error) bool { return target == ErrUneditable }

const (
	ErrUnchanged uneditable = "the edit has no effect"
	ErrSecrets   uneditable = "the message has secrets that the editor may not see"
)

// Apply returns the edited content, which shares memory with c. It returns errUnchanged if the edit has no effect, or
// another error of type uneditable if the edit is not possible.
func (x *Editor) Apply(c Content) (Content, error) {
	if x.SpareSecrets && c.isRedacted(x.secrets) {
		return c, ErrSecrets
	}
	out := c
	if x.patch != nil || len(x.Replace) > 0 {
		if !c.Properties.Plain() {
			return c, uneditable(fmt.Sprintf("the body has a content encoding (%s)", brief.Quoted(c.Properties.ContentEncoding)))
		}
		var err error
		if out.Body, err = x.body(c.Body); err != nil {
			return c, uneditable(err.Error())
		}
	}
	if len(x.set)+len(x.RemoveHeaders) > 0 {
		out.Headers = make(topology.Table, len(c.Headers)+len(x.set))
		maps.Copy(out.Headers, c.Headers)
		maps.Copy(out.Headers, x.set)
		for _, name := range x.RemoveHeaders {
			delete(out.Headers, name)
		}
	}
	out, err := c.EditedTo(out)
	if err != nil {
		return c, err
	}
	same := tablejson.Equal(out.Headers, c.Headers)
	if same && bytes.Equal(out.Body, c.Body) {
		return c, ErrUnchanged
	}
	return out, nil
}

// Sent returns the content that a replay sends for a message: the edited content, or the unchanged content if the
// edit permits that. Its errors are of type uneditable.
func (x *Editor) Sent(c Content) (Content, error) {
	out, err := x.Apply(c)
	send := x.SendImpossible
	switch err {
	case nil, ErrSecrets:
		return out, err
	case ErrUnchanged:
		send = x.SendUnchanged
	}
	if send {
		return c, nil
	}
	return c, err
}

func (x *Editor) body(body []byte) ([]byte, error) {
	limit := max(maxEditResult, len(body))
	var err error
	if x.patch != nil {
		if body, err = x.patch.Apply(body, limit); err != nil {
			return nil, err
		}
	}
	if len(x.Replace) == 0 {
		return body, nil
	}
	if !utf8.Valid(body) {
		return nil, errors.New("body is not valid UTF-8")
	}
	wasJSON := json.Valid(body)
	for i, r := range x.Replace {
		if body, err = r.replace(body, x.regexps[i], limit); err != nil {
			return nil, err
		}
	}
	if wasJSON && !json.Valid(body) {
		return nil, errors.New("edited body is not valid JSON")
	}
	return body, nil
}

func (r Replacement) replace(body []byte, x *regexp.Regexp, limit int) ([]byte, error) {
	if x == nil {
		n := bytes.Count(body, []byte(r.Old))
		var places [][2]int
		if n == 0 {
			places = findFormatted(body, r.Old)
		}
		switch {
		case n+len(places) == 0:
			return nil, fmt.Errorf("text %s not found", brief.Quoted(r.Old))
		case len(body)+n*(len(r.New)-len(r.Old))+len(places)*len(r.New) > limit:
			return nil, jsonpatch.ErrTooLarge
		case n == 0:
			return replaceFormatted(body, places, r.New), nil
		}
		return bytes.ReplaceAll(body, []byte(r.Old), []byte(r.New)), nil
	}
	matches := x.FindAllSubmatchIndex(body, maxMatches+1)
	switch n := len(matches); {
	case n == 0:
		return nil, fmt.Errorf("regular expression %s not found", brief.Quoted(r.Old))
	case n > maxMatches:
		return nil, fmt.Errorf("regular expression %s found more than %d times", brief.Quoted(r.Old), maxMatches)
	}
	var out []byte
	at := 0
	for _, m := range matches {
		if longest := len(r.New) + strings.Count(r.New, "$")*(m[1]-m[0]); longest > 2*limit {
			return nil, jsonpatch.ErrTooLarge
		}
		out = x.Expand(append(out, body[at:m[0]]...), []byte(r.New), body, m)
		if at = m[1]; len(out)+len(body)-at > limit {
			return nil, jsonpatch.ErrTooLarge
		}
	}
	return append(out, body[at:]...), nil
}

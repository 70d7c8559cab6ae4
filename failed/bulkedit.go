package failed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/jsonpatch"
	"github.com/reprisemq/reprise/topology"
)

// BulkEdit changes all messages of a replay in the same way: each message is edited when it is sent. The steps are done in the order
// of the fields, on what a replay would send without it (Message.Current). The result depends on the message and the edit alone, so
// that a message that is sent a second time after a crash has the same bytes.
//
// A message is changed as a whole or not at all. The edit is not possible if the body is not JSON (for Patch) or not UTF-8 (for
// Replace), is encoded (Properties.ContentEncoding), lacks a path or a text, would be JSON no longer, or would have more than
// 16 MiB and more than before. Such a message, and one that the edit does not change, is not sent and stays in state failed, with
// the reason in Message.Refused.
//
// The archive keeps the original, and records what was sent as a Revision when it notes that the message was sent.
type BulkEdit struct {
	// Patch is a JSON Patch (RFC 6902) of the body. All bytes of the body that it does not name stay as they are. If a name in
	// one of its paths occurs twice in the body, the edit is not possible. Empty: none.
	Patch string `json:"patch,omitempty"`

	// Replace are texts to replace in the body, one after the other, each wherever it occurs. Each must occur.
	Replace []Replacement `json:"replace,omitempty"`

	// SetHeaders are headers to add or replace. RemoveHeaders are names of headers to remove, if they are there. Headers of
	// Reprise and of the broker cannot be named.
	SetHeaders    topology.Table `json:"-"`
	RemoveHeaders []string       `json:"remove_headers,omitempty"`

	// SendUnchanged sends also the messages that the edit does not change, and SendImpossible those for which it is not
	// possible, as they are.
	SendUnchanged  bool `json:"send_unchanged,omitempty"`
	SendImpossible bool `json:"send_impossible,omitempty"`

	// SpareSecrets makes the edit impossible for messages of which Config.Redact hides something: whoever may not see a secret
	// could make the edit copy it, or learn it from the number of messages that change. They are not sent with
	// SendImpossible either.
	SpareSecrets bool `json:"spare_secrets,omitempty"`
}

// Replacement is a text to replace in a body.
type Replacement struct {
	Old    string `json:"old"`              // the text, or a regular expression in the syntax of RE2
	New    string `json:"new"`              // with a Regexp, $1 is the text of the first group, and $$ is a dollar
	Regexp bool   `json:"regexp,omitempty"` // Old is a regular expression
}

// Limits of a bulk edit.
const (
	maxEditText     = 64 << 10 // of the patch, and of all texts
	maxReplacements = 20
	maxMatches      = 10_000   // of a regular expression in a body
	maxEditResult   = 16 << 20 // of a body that grows
)

// Validate reports an edit that changes nothing or cannot be carried out, as an error that is ErrInvalid.
func (e *BulkEdit) Validate() error {
	_, err := e.compile(nil)
	return err
}

// String describes the edit in words, without its texts.
func (e *BulkEdit) String() string {
	var parts []string
	if e.Patch != "" {
		parts = append(parts, "JSON Patch")
	}
	if n := len(e.Replace); n > 0 {
		parts = append(parts, counted1(n, "text replacement"))
	}
	if n := len(e.SetHeaders); n > 0 {
		parts = append(parts, counted1(n, "header")+" set")
	}
	if n := len(e.RemoveHeaders); n > 0 {
		parts = append(parts, counted1(n, "header")+" removed")
	}
	return strings.Join(parts, ", ")
}

func counted1(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// editor is a BulkEdit that is ready to be applied.
type editor struct {
	*BulkEdit
	patch   *jsonpatch.Patch // nil: none
	regexps []*regexp.Regexp // of Replace; nil where the text is literal
	set     topology.Table   // with the types that the archive returns
	secrets []Rule
}

func (e *BulkEdit) compile(secrets []Rule) (*editor, error) {
	invalid := func(format string, args ...any) (*editor, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	x := &editor{BulkEdit: e, secrets: secrets}
	if e.Patch == "" && len(e.Replace)+len(e.SetHeaders)+len(e.RemoveHeaders) == 0 {
		return invalid("the edit is empty (give a patch, a text or a header)")
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
				return invalid("regular expression %.80q must not match an empty text", r.Old)
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
			return invalid("header %.80q must have a name of 1 to 255 bytes", name)
		case i > 0 && name == names[i-1]:
			return invalid("header %.80q is named twice", name)
		case strings.HasPrefix(name, "x-reprise-") || spent(name, nil) || name == "CC" || name == "BCC":
			return invalid("header %.80q is one of Reprise or the broker: an edit cannot change it", name)
		}
	}
	text, err := encodeTable(e.SetHeaders)
	if err != nil {
		return invalid("%w", err)
	}
	x.set, err = decodeTable(text)
	return x, err
}

var reference = regexp.MustCompile(`\$\$|\$(\w+)|\$\{(\w*)\}`)

// checkTemplate reports a reference to a group that the expression does not have: it would be replaced by nothing. In $1x, the name
// is 1x.
func checkTemplate(x *regexp.Regexp, template string) error {
	for _, m := range reference.FindAllStringSubmatch(template, -1) {
		name := m[1] + m[2]
		if n, err := strconv.Atoi(name); m[0] == "$$" || err == nil && n <= x.NumSubexp() || err != nil && name != "" && x.SubexpIndex(name) >= 0 {
			continue
		}
		return fmt.Errorf("%.40q names no group of the regular expression (write ${1}x for group 1 before an x, and $$ for a dollar)", m[0])
	}
	return nil
}

// errUneditable is why a message of an edited replay is not sent.
var errUneditable = errors.New("not edited")

// uneditable is a reason, which is the same for all messages that are alike in this respect.
type uneditable string

func (e uneditable) Error() string        { return string(e) }
func (e uneditable) Is(target error) bool { return target == errUneditable }

const (
	errUnchanged uneditable = "the edit changes nothing"
	errSecrets   uneditable = "the message has secrets that the editor may not see"
)

// apply returns the edited content, which shares memory with c. The error is errUnchanged, or another uneditable if the edit is not
// possible.
func (x *editor) apply(c Content) (Content, error) {
	if x.SpareSecrets && c.isRedacted(x.secrets) {
		return c, errSecrets
	}
	out := c
	if x.patch != nil || len(x.Replace) > 0 {
		if !c.Properties.plain() {
			return c, uneditable(fmt.Sprintf("the body is encoded (%.40q)", c.Properties.ContentEncoding))
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
	same := len(out.Headers) == 0 && len(c.Headers) == 0 || reflect.DeepEqual(out.Headers, c.Headers)
	if same && bytes.Equal(out.Body, c.Body) {
		return c, errUnchanged
	}
	return out, nil
}

// sent returns what a replay sends of a message: the edited content, or the content as it is if the edit says so. The error is an
// uneditable.
func (x *editor) sent(c Content) (Content, error) {
	out, err := x.apply(c)
	send := x.SendImpossible
	switch err {
	case nil, errSecrets:
		return out, err
	case errUnchanged:
		send = x.SendUnchanged
	}
	if send {
		return c, nil
	}
	return c, err
}

func (x *editor) body(body []byte) ([]byte, error) {
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
		return nil, errors.New("the body is not UTF-8")
	}
	wasJSON := json.Valid(body)
	for i, r := range x.Replace {
		if body, err = r.replace(body, x.regexps[i], limit); err != nil {
			return nil, err
		}
	}
	if wasJSON && !json.Valid(body) {
		return nil, errors.New("the edited body is no longer JSON")
	}
	return body, nil
}

func (r Replacement) replace(body []byte, x *regexp.Regexp, limit int) ([]byte, error) {
	if x == nil {
		n := bytes.Count(body, []byte(r.Old))
		switch {
		case n == 0:
			return nil, fmt.Errorf("text %.80q not found", r.Old)
		case len(body)+n*(len(r.New)-len(r.Old)) > limit:
			return nil, jsonpatch.ErrTooLarge
		}
		return bytes.ReplaceAll(body, []byte(r.Old), []byte(r.New)), nil
	}
	matches := x.FindAllSubmatchIndex(body, maxMatches+1)
	switch n := len(matches); {
	case n == 0:
		return nil, fmt.Errorf("regular expression %.80q not found", r.Old)
	case n > maxMatches:
		return nil, fmt.Errorf("regular expression %.80q found more than %d times", r.Old, maxMatches)
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

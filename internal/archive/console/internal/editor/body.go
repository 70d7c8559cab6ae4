package editor

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/brief"
)

// maxEdited is the maximum size of an editable body. Larger forms make browsers slow.
const maxEdited = 1 << 20

// maxIndented is the maximum size of an editable body after indentation.
const maxIndented = 2 * maxEdited

// Representations of a body in a form.
const (
	bodyText   = "text"   // unchanged
	bodyIndent = "indent" // JSON on one line, which the form shows indented
	bodyHex    = "hex"    // binary data
	bodyNone   = "none"   // too large to edit

	bodyReference = "reference" // text that refers to a stored body
	bodyEncrypted = "encrypted" // cannot be edited
)

// editableBody chooses a representation in which a form can be submitted without changing the body. Browsers convert
// all line breaks in a form to CR LF. A body is therefore editable as text only if its line breaks are either all LF or
// all CR LF.
func editableBody(body []byte) (how, text string) {
	switch {
	case len(body) > maxEdited:
		return bodyNone, ""
	case !show.IsText(body) || brief.Visible(string(body)) != string(body) || mixedBreaks(string(body)):
		if len(body) > show.MaxHexShown {
			return bodyNone, ""
		}
		return bodyHex, hexLines(body)
	}
	if !bytes.ContainsAny(body, "\r\n") {
		if indented, ok := api.Indent(bytes.TrimSpace(body), maxIndented); ok && bytes.ContainsRune(indented, '\n') {
			return bodyIndent, string(indented)
		}
	}
	return bodyText, string(body)
}

func mixedBreaks(s string) bool {
	crlf := strings.Count(s, "\r\n")
	return strings.Count(s, "\r") != crlf || crlf > 0 && strings.Count(s, "\n") != crlf
}

// hexLines formats a body in hexadecimal, 16 bytes per line.
func hexLines(body []byte) string {
	var lines []string
	for line := range slices.Chunk(body, 16) {
		lines = append(lines, fmt.Sprintf("% x", line))
	}
	return strings.Join(lines, "\n")
}

// bytes decodes the body in the form. The parameter before is the body without the edit.
func (f *EditFormView) bytes(before []byte) ([]byte, error) {
	switch f.How {
	case bodyNone, bodyEncrypted:
		return before, nil
	case bodyHex:
		body, err := hex.DecodeString(strings.Join(strings.Fields(f.Body), ""))
		if bad, ok := errors.AsType[hex.InvalidByteError](err); ok {
			return nil, fmt.Errorf("%s in the body is not a hexadecimal digit (use two digits from 0 to f for each byte)", brief.Quoted(string(rune(bad))))
		}
		if err != nil {
			return nil, errors.New("body must have two hexadecimal digits for each byte: got an odd number of digits")
		}
		return body, nil
	case bodyIndent:
		return onOneLine([]byte(f.Body), before), nil
	}
	if bytes.Contains(before, []byte("\r\n")) {
		return []byte(strings.ReplaceAll(f.Body, "\n", "\r\n")), nil
	}
	return []byte(f.Body), nil
}

// onOneLine returns edited on one line if it is valid JSON: with the spacing of Python (see spaced) if the body before
// has this spacing, and otherwise compact. If the two bodies differ only in white space, the result is before.
func onOneLine(edited, before []byte) []byte {
	compact, was := compacted(edited), compacted(before)
	switch {
	case compact == nil:
		return edited
	case bytes.Equal(compact, was):
		return before
	case was != nil && bytes.Equal(spaced(was), before):
		return spaced(compact)
	}
	return compact
}

// compacted removes white space from JSON. It returns nil for invalid JSON.
func compacted(body []byte) []byte {
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return nil
	}
	return compact.Bytes()
}

// spaced adds a space after each comma and colon of compact JSON, as Python does by default.
func spaced(compact []byte) []byte {
	var b bytes.Buffer
	inText, escaped := false, false
	for _, c := range compact {
		b.WriteByte(c)
		switch {
		case escaped:
			escaped = false
		case inText && c == '\\':
			escaped = true
		case c == '"':
			inText = !inText
		case !inText && (c == ',' || c == ':'):
			b.WriteByte(' ')
		}
	}
	return b.Bytes()
}

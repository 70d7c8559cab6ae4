package editor

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/console/internal/show"
	"github.com/reprisemq/reprise/internal/api"
)

// maxEdited bounds the body that a form takes: browsers get slow with more.
const maxEdited = 1 << 20

// maxIndented bounds it once it is indented.
const maxIndented = 2 * maxEdited

// The ways in which a form has a body in it.
const (
	bodyText   = "text"   // as it is
	bodyIndent = "indent" // JSON on one line, formatted; saved on one line
	bodyHex    = "hex"    // bytes that are no text
	bodyNone   = "none"   // too long: it stays as it is
)

// editableBody is a body as a form can hold it without losing a byte. Browsers turn
// every line break of a form into CR LF, so that a body with such is only text if all
// of its line breaks are.
func editableBody(body []byte) (how, text string) {
	switch {
	case len(body) > maxEdited:
		return bodyNone, ""
	case !show.IsText(body) || show.Visible(string(body)) != string(body) || mixedBreaks(string(body)):
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

// hexLines writes bytes as pairs of digits, 16 to a line.
func hexLines(body []byte) string {
	var lines []string
	for line := range slices.Chunk(body, 16) {
		lines = append(lines, fmt.Sprintf("% x", line))
	}
	return strings.Join(lines, "\n")
}

// bytes is the body that the form has in it.
func (f *EditFormView) bytes(before []byte) ([]byte, error) {
	switch f.How {
	case bodyNone:
		return before, nil
	case bodyHex:
		body, err := hex.DecodeString(strings.Join(strings.Fields(f.Body), ""))
		if bad, ok := errors.AsType[hex.InvalidByteError](err); ok {
			return nil, fmt.Errorf("%q in the body is not a hexadecimal digit (write two digits from 0 to f for each byte)", rune(bad))
		}
		if err != nil {
			return nil, errors.New("the body has an odd number of digits (write two for each byte)")
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

// onOneLine returns edited JSON on one line, with spaces as the body before it has them. What has not changed but in
// its spaces is the body before.
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

// compacted returns JSON without spaces, nil for what is not JSON.
func compacted(body []byte) []byte {
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return nil
	}
	return compact.Bytes()
}

// spaced returns compact JSON with a space after each comma and colon, as some programs write it.
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

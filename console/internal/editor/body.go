package editor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
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
	bodyIndent = "indent" // JSON on one line, indented to be read; kept on one line
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
	var compact bytes.Buffer
	if json.Compact(&compact, body) == nil && bytes.Equal(compact.Bytes(), body) {
		if indented, ok := api.Indent(body, maxIndented); ok && bytes.ContainsRune(indented, '\n') {
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
	var b strings.Builder
	for i, c := range body {
		switch {
		case i == 0:
		case i%16 == 0:
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%02x", c)
	}
	return b.String()
}

// bytes is the body that the form has in it.
func (f *EditFormView) bytes(before []byte) ([]byte, error) {
	switch f.How {
	case bodyNone:
		return before, nil
	case bodyHex:
		digits := strings.Join(strings.Fields(f.Body), "")
		if len(digits)%2 != 0 {
			return nil, fmt.Errorf("the body has an odd number of digits: write two for each byte")
		}
		body := make([]byte, 0, len(digits)/2)
		for i := 0; i < len(digits); i += 2 {
			b, err := strconv.ParseUint(digits[i:i+2], 16, 8)
			if err != nil {
				return nil, fmt.Errorf("%q in the body is no byte: write two digits from 0 to f", digits[i:i+2])
			}
			body = append(body, byte(b))
		}
		return body, nil
	case bodyIndent:
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(f.Body)) == nil {
			return compact.Bytes(), nil
		}
		return []byte(f.Body), nil
	}
	if bytes.Contains(before, []byte("\r\n")) {
		return []byte(strings.ReplaceAll(f.Body, "\n", "\r\n")), nil
	}
	return []byte(f.Body), nil
}

package api

import (
	"bytes"
	"encoding/json"
)

const indent = "  "

// Indent returns indented JSON. It returns false if body is not valid JSON, or if the result would be longer than most
// bytes. Indent computes the size first, because a few kilobytes of deeply nested JSON become gigabytes of spaces.
func Indent(body []byte, most int) ([]byte, bool) {
	if !indentsWithin(body, most) {
		return nil, false
	}
	var b bytes.Buffer
	if json.Indent(&b, body, "", indent) != nil {
		return nil, false
	}
	return b.Bytes(), true
}

// indentsWithin reports whether the indented JSON has at most the given size.
func indentsWithin(body []byte, most int) bool {
	size, depth, quoted := len(body), 0, false
	for i := 0; i < len(body) && size <= most; i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			size += len("\n") + depth*len(indent)
		case c == '}' || c == ']':
			depth = max(0, depth-1) // invalid JSON; json.Indent reports the error
			size += len("\n") + depth*len(indent)
		case c == ',':
			size += len("\n") + depth*len(indent)
		case c == ':':
			size++
		}
	}
	return size <= most
}

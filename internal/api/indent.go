package api

import (
	"bytes"
	"encoding/json"
)

const indent = "  "

// Indent returns JSON indented to be read; false if it is no JSON, or would be longer
// than most bytes. It is measured before it is written: a few kilobytes that nest
// deeply become gigabytes of spaces.
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

// indentsWithin reports whether JSON is at most so long when it is indented.
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
			depth = max(0, depth-1) // it is no JSON, which json.Indent will say
			size += len("\n") + depth*len(indent)
		case c == ',':
			size += len("\n") + depth*len(indent)
		case c == ':':
			size++
		}
	}
	return size <= most
}

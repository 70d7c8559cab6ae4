package api

import (
	"bytes"
	"encoding/json"
)

const indent = "  "

// Indent returns indented JSON. It returns false if body is not valid JSON, or if the estimated size of the result exceeds
// maxSize bytes. Indent estimates the size first, because 20 kB of deeply nested JSON can become 200 MB of spaces.
func Indent(body []byte, maxSize int) ([]byte, bool) {
	if !indentsWithin(body, maxSize) {
		return nil, false
	}
	var b bytes.Buffer
	if json.Indent(&b, body, "", indent) != nil {
		return nil, false
	}
	return b.Bytes(), true
}

// indentsWithin reports whether the estimated size of the indented JSON is at most maxSize. It overestimates empty objects
// and arrays, which json.Indent does not split into lines.
func indentsWithin(body []byte, maxSize int) bool {
	size, depth, quoted := len(body), 0, false
	for i := 0; i < len(body) && size <= maxSize; i++ {
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
	return size <= maxSize
}

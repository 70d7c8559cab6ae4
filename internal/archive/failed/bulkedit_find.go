package failed

import (
	"bytes"
	"encoding/json"
)

// maxFormatted limits the memory of findFormatted, which is a multiple of the size of the body.
const maxFormatted = 1 << 20

// findFormatted returns the places of a part of a JSON document in a body that has other white space between its tokens, for
// example because the part was copied from the formatted body. It returns nil if the body is not JSON or
// has more than maxFormatted bytes.
func findFormatted(body []byte, part string) (places [][2]int) {
	if len(body) > maxFormatted || !json.Valid(body) {
		return nil
	}
	doc := compactJSON(body, false)
	for _, inString := range []bool{false, true} { // the part can begin within a string
		wanted := compactJSON([]byte(part), inString).text
		for at := 0; len(wanted) > 0; at++ {
			n := bytes.Index(doc.text[at:], wanted)
			if n < 0 {
				break
			}
			if at += n; doc.inString[at] == inString {
				end := at + len(wanted) - 1
				places = append(places, [2]int{doc.offset[at], doc.offset[end] + 1})
				at = end
			}
		}
		if places != nil {
			return places
		}
	}
	return nil
}

// compact is JSON without white space between its tokens.
type compact struct {
	text     []byte
	offset   []int  // of each byte in the original text
	inString []bool // whether the text before each byte ends within a string
}

func compactJSON(text []byte, inString bool) (c compact) {
	escaped := false
	for i, b := range text {
		if !inString && (b == ' ' || b == '\t' || b == '\n' || b == '\r') {
			continue
		}
		c.text, c.offset, c.inString = append(c.text, b), append(c.offset, i), append(c.inString, inString)
		switch {
		case escaped:
			escaped = false
		case inString && b == '\\':
			escaped = true
		case b == '"':
			inString = !inString
		}
	}
	return c
}

// replaceFormatted is like bytes.ReplaceAll for the places of a text.
func replaceFormatted(body []byte, places [][2]int, with string) []byte {
	var out []byte
	at := 0
	for _, p := range places {
		out = append(append(out, body[at:p[0]]...), with...)
		at = p[1]
	}
	return append(out, body[at:]...)
}

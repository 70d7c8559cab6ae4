package api

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text is a string that may be any bytes, such as the name of a queue. In JSON it is
// what it is where it is UTF-8, and else "base64:" and its bytes, as is one
// that begins so.
type Text string

const base64Text = "base64:"

// MarshalText implements [encoding.TextMarshaler].
func (t Text) MarshalText() ([]byte, error) {
	s := string(t)
	if !utf8.ValidString(s) || strings.HasPrefix(s, base64Text) {
		s = base64Text + base64.StdEncoding.EncodeToString([]byte(s))
	}
	return []byte(s), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Text) UnmarshalText(text []byte) error {
	encoded, found := strings.CutPrefix(string(text), base64Text)
	if !found {
		*t = Text(text)
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("%.40q: after %q comes base64; a text that begins so is written in base64 as well", text, base64Text)
	}
	*t = Text(b)
	return nil
}

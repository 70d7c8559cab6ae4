package params

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/brief"
)

// Text is a byte string, such as the name of a queue. In JSON and in a URL, a valid UTF-8 string is unchanged. Any other
// string, and any string that begins with "base64:", is encoded as "base64:" followed by the base64 of its bytes.
type Text string

const base64Text = "base64:"

// Encode returns the text form of t, which is valid UTF-8.
func (t Text) Encode() string {
	s := string(t)
	if !utf8.ValidString(s) || strings.HasPrefix(s, base64Text) {
		s = base64Text + base64.StdEncoding.EncodeToString([]byte(s))
	}
	return s
}

// MarshalText implements [encoding.TextMarshaler].
func (t Text) MarshalText() ([]byte, error) { return []byte(t.Encode()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Text) UnmarshalText(text []byte) error {
	encoded, found := strings.CutPrefix(string(text), base64Text)
	if !found {
		*t = Text(text)
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("%s must have base64 after %s (encode a string with this prefix in base64 as well)", brief.Quoted(string(text)), base64Text)
	}
	*t = Text(b)
	return nil
}

// Texts maps names to values. In JSON, it is an object whose names are encoded like [Text]. In a URL, each pair is a
// parameter of the form NAME:VALUE.
type Texts map[string]string

// MarshalJSON implements [json.Marshaler].
func (x Texts) MarshalJSON() ([]byte, error) {
	written := make(map[string]string, len(x))
	for name, value := range x {
		written[Text(name).Encode()] = value
	}
	return json.Marshal(written)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (x *Texts) UnmarshalJSON(b []byte) error {
	var written map[Text]string
	if err := json.Unmarshal(b, &written); err != nil {
		return err
	}
	*x = nil
	for name, value := range written {
		if *x == nil {
			*x = Texts{}
		}
		(*x)[string(name)] = value
	}
	return nil
}

func (x Texts) pairs() (pairs []string) {
	for _, name := range slices.Sorted(maps.Keys(x)) {
		pairs = append(pairs, escape(name, true)+":"+escape(x[name], false))
	}
	slices.Sort(pairs)
	return pairs
}

// escape escapes the name or the value of a pair: percent signs, colons in a name, and leading and trailing spaces, which
// read would otherwise remove.
func escape(text string, isName bool) string {
	inner := strings.TrimSpace(text)
	start := strings.Index(text, inner)
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c == '%' || c == ':' && isName || i < start || i >= start+len(inner) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (x *Texts) read(pairs []string) error {
	all := Texts{}
	for _, pair := range pairs {
		if pair == "" {
			return errors.New("must not be empty (leave it out)")
		}
		name, value, found := strings.Cut(pair, ":")
		name, errName := url.PathUnescape(strings.TrimSpace(name))
		value, errValue := url.PathUnescape(strings.TrimSpace(value))
		if !found || name == "" || errName != nil || errValue != nil {
			return fmt.Errorf("%s is not NAME:VALUE (write %%25 for %%, and %%3A for : in the name)", brief.Quoted(pair))
		}
		if _, twice := all[name]; twice {
			return fmt.Errorf("%s must be given once", brief.Quoted(name))
		}
		all[name] = value
	}
	*x = all
	return nil
}

package show

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"mime"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
)

// Limits of a body on a page. The page links to the complete body.
const (
	MaxBodyShown = 256 << 10
	MaxHexShown  = 16 << 10
	MaxFields    = 1000 // of a form
)

// BodyView is a body, prepared for a page.
type BodyView struct {
	Kind   string      // JSON, XML, form, text, binary, reference or encrypted
	Size   int         // size of the body in bytes, before decoding
	Spans  []span      // for all kinds except binary
	Hex    string      // for binary
	Cut    bool        // the page omits the end of the body
	Coding string      // the content encoding that the page decoded
	Fields [][2]string // for form
	Key    string      // name of the key that has encrypted the body; "" if it is not encrypted
}

// span is a run of text with a CSS class. Plain text has the class "".
type span struct{ Class, Text string }

// ViewBody formats the body of c according to its content type or, if the content type does not determine the kind, its
// first bytes.
func ViewBody(c failed.Content) BodyView {
	v := BodyView{Size: len(c.Body)}
	body := c.Body
	if strings.EqualFold(c.Properties.ContentEncoding, "gzip") {
		if plain, cut, err := gunzip(body); err == nil {
			body, v.Coding, v.Cut = plain, "gzip", cut
		}
	}
	if len(body) > MaxBodyShown {
		body, v.Cut = body[:MaxBodyShown], true
		for range utf8.UTFMax - 1 { // do not cut in the middle of a character
			if r, _ := utf8.DecodeLastRune(body); r != utf8.RuneError {
				break
			}
			body = body[:len(body)-1]
		}
	}
	media, _, _ := mime.ParseMediaType(c.Properties.ContentType)
	key, encrypted := failed.EncryptionKey(c.Headers)
	if encrypted {
		v.Key = brief.Visible(cmp.Or(key, "(without a name)"))
	}
	switch {
	case encrypted && !IsText(body):
		v.Kind, v.Cut = "encrypted", false
	case c.IsReference():
		v.Kind, v.Spans = "reference", []span{{Text: string(body)}}
	case !IsText(body):
		v.Kind, v.Hex = "binary", hex.Dump(body[:min(len(body), MaxHexShown)])
		v.Cut = v.Cut || len(body) > MaxHexShown
	case looksLikeJSON(media, body) && v.json(body), looksLikeXML(media, body) && v.xml(body):
	case media == "application/x-www-form-urlencoded" && v.form(body):
	default:
		v.Kind, v.Spans = "text", []span{{Text: brief.Visible(string(body))}}
	}
	return v
}

// gunzip decompresses only the part of a body that is displayed, because a small body can decompress to a huge size.
func gunzip(body []byte) (plain []byte, cut bool, err error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	plain, err = io.ReadAll(io.LimitReader(z, MaxBodyShown+1))
	if err != nil {
		return nil, false, err
	}
	return plain, len(plain) > MaxBodyShown, nil
}

// IsText reports whether b is valid UTF-8 and at most 5% of its bytes are control characters other than line breaks and
// tabs.
func IsText(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	controls := 0
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			controls++
		}
	}
	return controls*20 <= len(b)
}

func looksLikeJSON(media string, body []byte) bool {
	if media == "application/json" || strings.HasSuffix(media, "+json") {
		return true
	}
	body = bytes.TrimSpace(body)
	return len(body) > 0 && (body[0] == '{' || body[0] == '[')
}

func looksLikeXML(media string, body []byte) bool {
	if media == "application/xml" || media == "text/xml" || strings.HasSuffix(media, "+xml") {
		return true
	}
	return bytes.HasPrefix(bytes.TrimSpace(body), []byte("<?xml"))
}

// json indents and highlights the body. It keeps the notation of numbers, the order of names and duplicate names,
// because any of these can be the cause of the failure.
func (v *BodyView) json(body []byte) bool {
	indented, ok := api.Indent(bytes.TrimSpace(body), 4*MaxBodyShown)
	if !ok {
		return false
	}
	v.Kind, v.Spans = "JSON", colourJSON(string(indented))
	return true
}

// colourJSON splits valid, indented JSON into names, strings, numbers, literals and the remaining text.
func colourJSON(s string) []span {
	var spans []span
	add := func(class, text string) {
		if n := len(spans); n > 0 && spans[n-1].Class == class {
			spans[n-1].Text += text
			return
		}
		spans = append(spans, span{class, text})
	}
	for s != "" {
		class, n := "", 1
		switch c := s[0]; {
		case c == '"':
			for n < len(s) && s[n] != '"' {
				if s[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(s))
			class = "t-str"
			if strings.HasPrefix(s[n:], ":") {
				class = "t-key"
			}
		case c == '-' || c >= '0' && c <= '9':
			n, class = prefix(s, "-+.eE0123456789"), "t-num"
		case c >= 'a' && c <= 'z':
			n, class = prefix(s, "aeflnrstu"), "t-lit"
		default:
			n = cmp.Or(prefix(s, " \n{}[],:"), 1)
		}
		add(class, brief.Visible(s[:n]))
		s = s[n:]
	}
	return spans
}

// prefix returns the number of leading bytes of s that are in set.
func prefix(s, set string) int { return len(s) - len(strings.TrimLeft(s, set)) }

// xml indents the body. If an element contains both text and elements, the body remains unchanged.
func (v *BodyView) xml(body []byte) bool {
	text, err := indentXML(body)
	if err != nil {
		return false
	}
	v.Kind, v.Spans = "XML", []span{{Text: brief.Visible(text)}}
	return true
}

func indentXML(body []byte) (string, error) {
	d := xml.NewDecoder(bytes.NewReader(body))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	var b strings.Builder
	depth, last, lastEnd := 0, byte(0), int64(0)
	line := func() {
		if b.Len() > 0 {
			b.WriteString("\n" + strings.Repeat("  ", depth))
		}
	}
	for {
		t, err := d.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
		raw := body[lastEnd:d.InputOffset()]
		lastEnd = d.InputOffset()
		if len(raw) == 0 { // the implicit end element of <a/>
			depth--
			last = 'e'
			continue
		}
		switch t.(type) {
		case xml.StartElement:
			if last == 't' {
				return string(body), nil
			}
			line()
			depth++
			last = 's'
		case xml.EndElement:
			depth--
			if last == 'e' {
				line()
			}
			last = 'e'
		case xml.CharData:
			if len(bytes.TrimSpace(raw)) == 0 {
				continue
			}
			if last != 's' {
				return string(body), nil
			}
			last = 't'
		default:
			if last == 't' {
				return string(body), nil
			}
			line()
			last = 'e'
		}
		if depth < 0 || depth > 64 || b.Len() > 4*MaxBodyShown {
			return "", errors.New("body is nested too deeply or too large to indent")
		}
		b.Write(raw)
	}
	if depth != 0 {
		return "", io.ErrUnexpectedEOF
	}
	return b.String(), nil
}

// form lists the fields of a form in their order in the body.
func (v *BodyView) form(body []byte) bool {
	for pair := range strings.SplitSeq(string(body), "&") {
		if len(v.Fields) == MaxFields {
			v.Cut = true
			break
		}
		name, value, _ := strings.Cut(pair, "=")
		n, err := url.QueryUnescape(name)
		if err != nil {
			return false
		}
		w, err := url.QueryUnescape(value)
		if err != nil {
			return false
		}
		v.Fields = append(v.Fields, [2]string{brief.Visible(n), brief.Visible(w)})
	}
	v.Kind = "form"
	return true
}

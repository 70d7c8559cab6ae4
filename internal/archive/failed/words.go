package failed

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/tablejson"
)

// This package, not the database, splits text into words, so that both databases return the same results and search
// strings have no syntax.
const (
	maxWord       = 64        // significant bytes of a word
	searchedBytes = 256 << 10 // indexed bytes of a body
	maxWords      = 512 << 10 // total bytes of all words; PostgreSQL accepts 1 MiB

	// mark begins terms that are not words. It is neither a letter nor a digit, so words do not contain it. It is not
	// ASCII, so FTS5 treats it as a part of the term.
	mark = "¶"
)

// words yields the words of a text in lower case.
func words(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := -1
		flush := func(end int) bool {
			if start < 0 {
				return true
			}
			w := cut(strings.ToLower(s[start:end]), maxWord)
			start = -1
			return yield(w)
		}
		for i, r := range s {
			switch {
			case !isWord(r):
				if !flush(i) {
					return
				}
			case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer):
				// These scripts do not use spaces, so each character is a word.
				if !flush(i) || !yield(string(r)) {
					return
				}
			case start < 0:
				start = i
			}
		}
		flush(len(s))
	}
}

func hasWord(s string) bool {
	for range words(s) {
		return true
	}
	return false
}

// terms collects distinct words.
type terms struct {
	seen map[string]bool
	list []string
	size int
}

func (t *terms) add(term string) {
	if t.seen[term] || t.size+len(term) > maxWords {
		return
	}
	if t.seen == nil {
		t.seen = make(map[string]bool)
	}
	t.seen[term] = true
	t.list = append(t.list, term)
	t.size += len(term) + 1
}

func (t *terms) text(s string) {
	for w := range words(s) {
		if t.size >= maxWords {
			return
		}
		t.add(w)
	}
}

func (t *terms) String() string { return strings.Join(t.list, " ") }

func queueTerm(id int64) string   { return mark + "q" + strconv.FormatInt(id, 36) }
func groupTerm(id GroupID) string { return mark + "g" + strconv.FormatInt(int64(id), 36) }

func headerTerm(name, text string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + text))
	return mark + "h" + hex.EncodeToString(sum[:8])
}

// termsOf returns the search terms of a message, separated by spaces.
func termsOf(m *Message, queue int64, rules []Rule) string {
	m = m.Redact(rules)
	var t terms
	t.add(queueTerm(queue))
	t.add(groupTerm(m.Group))
	t.message(m)
	return t.String()
}

// message adds the terms of a message, except its queue and its group.
func (t *terms) message(m *Message) {
	for name, v := range m.Headers {
		if text, ok := tablejson.Text(v); ok && text != redacted {
			t.add(headerTerm(name, text))
		}
	}
	t.text(m.Error)
	t.text(m.Reason)
	for _, e := range m.Errors {
		t.text(e.Error)
	}
	t.text(m.Properties.MessageID)
	t.text(m.Properties.CorrelationID)
	if body := m.Body[:min(len(m.Body), searchedBytes)]; isText(body, m.Properties) {
		t.text(string(body))
	}
}

// isText reports whether the beginning of a body is text. It ignores the content type, which is often missing or
// wrong.
func isText(b []byte, p Properties) bool {
	if !p.plain() {
		return false
	}
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 && len(b) >= utf8.UTFMax { // the last character may be incomplete
			return false
		}
		if r < ' ' && r != '\n' && r != '\r' && r != '\t' && r != '\f' {
			return false
		}
		b = b[n:]
	}
	return true
}

// plain reports whether the body is not encoded (compressed, for example). Some publishers set a character encoding as
// the content encoding.
func (p Properties) plain() bool {
	switch strings.ToLower(p.ContentEncoding) {
	case "", "utf-8", "utf8", "identity", "8bit", "7bit":
		return true
	}
	return false
}

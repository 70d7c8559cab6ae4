package failed

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Package failed, not the database, splits text into words, so that both databases return the same results and search
// strings have no syntax.
const maxWord = 64 // significant bytes of a word

// Words yields the words of a text in lower case.
func Words(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := -1
		flush := func(end int) bool {
			if start < 0 {
				return true
			}
			w := Cut(strings.ToLower(s[start:end]), maxWord)
			start = -1
			return yield(w)
		}
		for i, r := range s {
			switch {
			case !IsWord(r):
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
	for range Words(s) {
		return true
	}
	return false
}

// IsText reports whether the beginning of a body is text. It ignores the content type, which is often missing or
// wrong.
func IsText(b []byte, p Properties) bool {
	if !p.Plain() {
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

// Plain reports whether the body is not encoded (compressed, for example). Some publishers set a character encoding as
// the content encoding.
func (p Properties) Plain() bool {
	switch strings.ToLower(p.ContentEncoding) {
	case "", "utf-8", "utf8", "identity", "8bit", "7bit":
		return true
	}
	return false
}

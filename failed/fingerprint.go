package failed

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxFingerprint is the length of the prefix of an error that its fingerprint covers.
const maxFingerprint = 4 << 10

// fingerprint returns the common part of errors that differ only in details. It replaces numbers, IDs, addresses and
// times with "*". It also replaces quoted strings that contain such a detail. It keeps codes: exit statuses, signals,
// HTTP statuses, SQLSTATE, and numbers that the error calls a code or an errno.
//
//	order 17: dial tcp 10.0.0.7:5432: i/o timeout after 1.5s
//	order *: dial tcp *: i/o timeout after *
//	POST /orders/17: 503 Service Unavailable
//	POST /orders/*: 503 Service Unavailable
//
// Failures of one queue with the same fingerprint form a Group. The function is pure and idempotent. The result is at
// most 4 KiB long and not longer than the error.
func fingerprint(errorText string) string {
	s := cut(strings.ToValidUTF8(cut(errorText, maxFingerprint), "?"), maxFingerprint)
	for {
		before := s
		s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
		s = hideCodes(s)
		for _, r := range shapes {
			s = r.ReplaceAllString(s, "*")
		}
		s = blankQuoted(blankWords(s))
		s = sign.ReplaceAllString(s, "$1*")
		s = showCodes(several.ReplaceAllString(s, "*"))
		if s == before {
			return s // the loop terminates, because each round shortens the text or leaves fewer digits
		}
	}
}

// shapes match details that cannot be recognized by their digits alone.
var shapes = []*regexp.Regexp{
	regexp.MustCompile(`\b((Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?` + dayFirst + `\b`),   // Mon, 02 Jan 2006
	regexp.MustCompile(`\b((Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?` + monthFirst + `\b`), // Mon Jan 2 15:04:05 2006
	regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`),
	regexp.MustCompile(`(?i)\b[0-9a-f]{2}([:-][0-9a-f]{2}){5,}\b`),                // MAC addresses, certificate fingerprints
	regexp.MustCompile(`(?i)\[?\b[0-9a-f]{1,4}(:[0-9a-f]{0,4}){2,7}\b(%\w+)?\]?`), // IPv6 addresses, times of day
	regexp.MustCompile(`[\p{L}\p{N}_.+-]+@[\p{L}\p{N}-]+(\.[\p{L}\p{N}-]+)+`),     // mail addresses
}

const (
	months     = `(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*`
	dayFirst   = `\d{1,2}[ -]` + months + `[ -]\d{2,4}( \d[\d:.]*)?( GMT| UTC| [A-Z]{3,4}\b)?`
	monthFirst = months + ` \d{1,2}[, ]+\d[\d:.]*( GMT| UTC)?( \d{4})?`
)

var (
	sign    = regexp.MustCompile(`(^|[^\p{L}\p{N}*+-])[+-]\*`)
	several = regexp.MustCompile(`\*(?:[\s.,:;/_+%-]*\*)+`)
)

// blankWords replaces words that contain digits. If a word ends with its digits, as in http2 or order17, its letters
// remain, unless the word consists of 8 or more hexadecimal digits.
func blankWords(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		end := strings.IndexFunc(s, func(r rune) bool { return !isWord(r) })
		if end == 0 {
			_, end = utf8.DecodeRuneInString(s)
			b.WriteString(s[:end])
			s = s[end:]
			continue
		}
		if end < 0 {
			end = len(s)
		}
		b.WriteString(blankWord(s[:end]))
		s = s[end:]
	}
	return b.String()
}

func blankWord(w string) string {
	first := strings.IndexFunc(w, unicode.IsNumber)
	if first < 0 {
		return w
	}
	rest := strings.IndexFunc(w[first:], unicode.IsLetter)
	if first == 0 || rest >= 0 || len(w) >= 8 && strings.Trim(w, "0123456789abcdefABCDEF") == "" {
		return "*"
	}
	return w[:first] + "*"
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// blankQuoted replaces quoted strings that contain "*" and no code. An apostrophe within a word does not start a
// quotation.
func blankQuoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		if c == '"' || c == '`' || c == '\'' && !wordBefore(s[:i]) {
			n := strings.IndexByte(s[i+1:], c)
			if n >= 0 && blank(s[i+1:i+1+n]) {
				b.WriteByte(c)
				b.WriteByte('*')
				b.WriteByte(c)
				i += n + 2
				continue
			}
			if n >= 0 && c != '\'' {
				b.WriteString(s[i : i+n+2])
				i += n + 2
				continue
			}
		}
		b.WriteByte(c)
		i++
	}
	return b.String()
}

func blank(quoted string) bool {
	return strings.Contains(quoted, "*") && showCodes(quoted) == quoted
}

func wordBefore(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return isWord(r) || r == '*' || s != "" && s[len(s)-1] >= hidden
}

// cut returns the longest prefix of s that has at most n bytes and ends at a character boundary.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n] // s is not valid UTF-8
}

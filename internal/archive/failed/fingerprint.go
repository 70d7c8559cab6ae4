package failed

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxFingerprint is the length of the prefix of an error that its fingerprint covers.
const MaxFingerprint = 4 << 10

// Fingerprint returns the common part of errors that differ only in details. It uses the first line, because a stack trace
// or the output of a program may follow. It replaces numbers, IDs, keys, addresses and times with "*". It also replaces
// quoted strings that contain such a detail or are names (see nameLike). It keeps codes: exit statuses, signals, HTTP
// statuses, SQLSTATE, and numbers that the error calls a code or an errno.
//
//	order 17: dial tcp 10.0.0.7:5432: i/o timeout after 1.5s
//	order *: dial tcp *: i/o timeout after *
//	POST /orders/17: 503 Service Unavailable
//	POST /orders/*: 503 Service Unavailable
//
// Failures of one queue with the same fingerprint form a Group. The function is pure and idempotent. The result is at
// most 4 KiB long and not longer than the error.
func Fingerprint(errorText string) string {
	s := Cut(strings.ToValidUTF8(Cut(firstLine(errorText), MaxFingerprint), "?"), MaxFingerprint)
	s = quotes.Replace(s)
	for {
		before := s
		s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
		s = longKey.ReplaceAllStringFunc(hideCodes(s), blankRandom)
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

// firstLine returns the first line that is not empty. If it ends with a colon, the next line belongs to it.
func firstLine(text string) string {
	text = strings.TrimSpace(text)
	end := strings.IndexByte(text, '\n')
	for end >= 0 {
		line := strings.TrimRight(text[:end], " \t\r")
		if !strings.HasSuffix(line, ":") {
			return line
		}
		next := strings.IndexByte(text[end+1:], '\n')
		if next < 0 {
			break
		}
		end += 1 + next
	}
	return text
}

// quotes replaces the quotation marks of other languages, so that one rule applies to all.
var quotes = strings.NewReplacer(
	"“", `"`, "”", `"`, "„", `"`, "‟", `"`, "«", `"`, "»", `"`, "「", `"`, "」", `"`, "『", `"`, "』", `"`, "〝", `"`, "〞", `"`,
	"‘", "'", "’", "'", "‚", "'", "‛", "'", "‹", "'", "›", "'",
)

// longKey matches words that can be base64.
var longKey = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}={0,2}`)

// directories matches the directories before a key.
var directories = regexp.MustCompile(`^(?:[a-z_-]{3,}/)+`)

// blankRandom replaces a word of mixed letters, such as base64.
func blankRandom(w string) string {
	at := len(directories.FindString(w))
	if strings.ContainsAny(w[at:], "0123456789+/=") && isRandom(w[at:]) {
		return w[:at] + "*"
	}
	return w
}

// isRandom reports whether the kind of character (upper case, lower case, digit) changes too often for words, even for
// names in camel case.
func isRandom(w string) bool {
	changes, letters, last := 0, 0, 0
	for i := range len(w) {
		kind := 0
		switch c := w[i]; {
		case 'a' <= c && c <= 'z':
			kind = 1
		case 'A' <= c && c <= 'Z':
			kind = 2
		case '0' <= c && c <= '9':
			kind = 3
		default:
			continue
		}
		letters++
		if kind != last && last != 0 {
			changes++
		}
		last = kind
	}
	return changes*5 >= letters*2
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
		end := strings.IndexFunc(s, func(r rune) bool { return !IsWord(r) })
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

func IsWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// blankQuoted replaces quoted strings that contain "*" and no code, and quoted names. An apostrophe within a word does not start a
// quotation.
func blankQuoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		if c == '"' || c == '`' || c == '\'' && !wordBefore(s[:i]) {
			n := strings.IndexByte(s[i+1:], c)
			if n >= 0 && nameLike(s[:i], s[i+1:i+1+n]) {
				b.WriteString(`"*"`)
				i += n + 2
				continue
			}
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

// nameLike reports whether a quoted string is a proper name, given the text before it: it follows a word for a person or a
// company, or it follows a word, and each of its words begins with a capital letter or with a letter of a script other
// than Latin. Names in programs, for example after the word column, distinguish errors.
func nameLike(before, quoted string) bool {
	noun, spaced := strings.CutSuffix(before, " ")
	if r, _ := utf8.DecodeLastRuneInString(before); quoted == "" || !spaced && (!unicode.IsLetter(r) || unicode.Is(unicode.Latin, r)) {
		return false // some scripts have no spaces
	}
	last := noun[strings.LastIndexFunc(noun, func(r rune) bool { return !unicode.IsLetter(r) })+1:]
	if last == "" || technical[strings.ToLower(last)] {
		return false
	}
	if personal[strings.ToLower(last)] {
		return true
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(quoted, " & ", " ")) {
		r, _ := utf8.DecodeRuneInString(word)
		if !unicode.IsLetter(r) || unicode.Is(unicode.Latin, r) && (!unicode.IsUpper(r) || strings.ContainsAny(word, "_.:/\\(){}[]<>=")) || word == strings.ToUpper(word) && len(word) > 1 && r < utf8.RuneSelf {
			return false
		}
	}
	return true
}

// personal contains the words before names of people and companies.
var personal = setOf(`account author benutzer buyer client cliente company customer employee firma kunde member merchant
	patient player seller supplier tenant user username usuario utilisateur vendor`)

// technical contains the words before quoted names that programmers have chosen.
var technical = setOf(`argument assembly attribute bean class column command component constraint dependency
		directive element endpoint enum event exception exchange extension field flag function header import index instance
		interface job key kind library member method middleware model module namespace object operation operator option package
		parameter plugin procedure property queue relation resource role route schema service setting state struct symbol table
		tag task template topic trait trigger type validator value variable view worker error named called undefined`)

func setOf(words string) map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		all[word] = true
	}
	return all
}

func wordBefore(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return IsWord(r) || r == '*' || s != "" && s[len(s)-1] >= hidden
}

// Cut returns the longest prefix of s that has at most n bytes and ends at a character boundary.
func Cut(s string, n int) string {
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

package failed

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// decisive lists the patterns of codes. A code is a number that distinguishes one error from another. The patterns
// match only short numbers, so that numbers mistaken for codes create few groups.
var decisive = []struct {
	words []string       // in lower case; a string with such a code contains at least one of them (a fast check)
	shape *regexp.Regexp // the first submatch is the code
}{
	// exit status 1; exited with code 137; signal 9.
	{[]string{"exit"}, regexp.MustCompile(`(?i)\b(?:exit|exited with) ?(?:status|code|value)` + is + number)},
	{[]string{"signal"}, regexp.MustCompile(`(?i)\bsignal` + is + number)},

	// HTTP/1.1 503; HTTP Error 404; status code: 502; "status":500; Response code 404; 503 Service Unavailable.
	{[]string{"http"}, regexp.MustCompile(`(?i)\bHTTP(?:/[\d.*]+)?(?: error| status| response)*(?: ?code)?` + is + status)},
	{[]string{"status", "response"}, regexp.MustCompile(`(?i)\b(?:status|response)(?:[ _-]?code)?` + is + status)},
	{[]string{""}, regexp.MustCompile(`(?:^|: )(` + statuses() + `) [\p{L}]`)}, // 502 upstream; failed: 404 not there
	{
		[]string{"returned", "answered", "responded", "replied", "received", "got"}, // upstream returned 404; got a 429 from
		regexp.MustCompile(`(?i)\b(?:returned|answered|responded|replied|received|got)(?: with)?(?: an?)? (` + statuses() + `)(?:[,.:;]|$| (?:for|from|on)\b)`),
	},
	{[]string{""}, regexp.MustCompile(`\b(` + reasons() + `|4\d\d Client Error|5\d\d Server Error)\b`)},

	// SQLSTATE 23505; SQLSTATE[HY000]; Error 1062 (23000) of MySQL; SQL Error: 1205.
	{[]string{"state"}, regexp.MustCompile(`(?i)\bSQL_?STATE[ :=\[(]*([0-9A-Z]{5})\b`)},
	{[]string{"):"}, regexp.MustCompile(`(?:^|: |(?i:error) )(\d{4} \([0-9A-Z]{5}\)):`)},
	{[]string{"error"}, regexp.MustCompile(`(?i)\b(?:sql error|returned error):? ` + number)},

	// errno 111; os error 2; WinError 10061; SQLCODE=-803; curl: (7); Exception (404); Error 403: Forbidden.
	{
		[]string{"errno", "winerror", "sqlcode", "hresult", "error number", "curl"},
		regexp.MustCompile(`(?i)\b(?:errno|winerror|sqlcode|hresult|error number|curl:)` + is + number),
	},
	{[]string{"error", "exception"}, regexp.MustCompile(`(?i)\b(?:error|exception) \(?` + number + `(?:[:,.)]| \(|$)`)},

	// error code 1062; errorCode=5; reply-code=404; code=17; code: '23505'; code: E1234.
	{[]string{"code"}, regexp.MustCompile(`(?i)\b(?:error|reply|return|result|vendor)[ _-]?code` + is + letters + `?` + number)},
	{[]string{"code"}, regexp.MustCompile(`\b[cC]ode(?:=|["']:|: ?["']) ?["']?` + number)},
	{[]string{"code"}, regexp.MustCompile(`\b[cC]ode["']?[=:] ?["']?` + letters + number)},

	// ORA-00001; ERR-42; E11000 of MongoDB; MY-010055 of MySQL.
	{[]string{"-"}, regexp.MustCompile(`\b(?:DPI|DPY|ERR|ERROR|ORA|PLS|TNS)-` + number)},
	{[]string{"e1100", "my-0"}, regexp.MustCompile(`\b(E1100[01]|MY-0\d{5})\b`)},

	// Arguments of a Python exception: (1062, "Duplicate entry"). JavaScript: closed by server: 404.
	{[]string{", \"", ", '"}, regexp.MustCompile(`(?:^|: ?|\) )\(` + number + `, ["']`)},
	{[]string{"closed by"}, regexp.MustCompile(`\bclosed by server: ` + number)},
}

const (
	is      = `(?: is| was)?["']?[ :=]*["'(]?` // between the name of a code and its value
	letters = `(?:[A-Z]{1,8}[-_]?)`
	number  = `(-?(?:0x[0-9a-fA-F]{1,8}|\d{1,5}))\b`
	status  = `([1-5]\d\d)\b`
)

// reasons returns a pattern for an HTTP status with its reason phrase.
func reasons() string {
	var all []string
	for code := 100; code < 600; code++ {
		if text := http.StatusText(code); text != "" {
			all = append(all, fmt.Sprintf(`%d[ :-]+%s`, code, regexp.QuoteMeta(text)))
		}
	}
	return strings.Join(all, "|")
}

// statuses returns a pattern for the HTTP statuses of errors.
func statuses() string {
	var all []string
	for code := 400; code < 600; code++ {
		if http.StatusText(code) != "" {
			all = append(all, fmt.Sprint(code))
		}
	}
	return strings.Join(all, "|")
}

// hidden is the first of ten byte values that represent the digits of codes while the other digits are replaced. Valid
// UTF-8 does not contain these bytes.
const hidden = 0xF5

// hideCodes replaces the digits 0 to 9 of codes with the bytes hidden to hidden+9.
func hideCodes(s string) string {
	if !strings.ContainsAny(s, "0123456789") {
		return s
	}
	b, lower := []byte(s), strings.ToLower(s)
	for _, c := range decisive {
		if !slices.ContainsFunc(c.words, func(word string) bool { return strings.Contains(lower, word) }) {
			continue
		}
		for _, at := range c.shape.FindAllStringSubmatchIndex(s, -1) {
			for i := at[2]; i < at[3]; i++ {
				if '0' <= b[i] && b[i] <= '9' {
					b[i] += hidden - '0'
				}
			}
		}
	}
	return string(b)
}

// showCodes undoes hideCodes.
func showCodes(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= hidden {
			b[i] -= hidden - '0'
		}
	}
	return string(b)
}

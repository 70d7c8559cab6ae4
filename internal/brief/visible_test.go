package brief

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// The result of Visible has no characters that affect the adjacent text, and Visible does not change its own result.
func TestVisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		got := Visible(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, Odd) {
			t.Fatalf("Visible(%q): got %q", s, got)
		}
		if again := Visible(got); again != got {
			t.Fatalf("Visible(%q): got %q, and then %q", s, got, again)
		}
	})
	for s, want := range map[string]string{"a\x00b": `a\x00b`, "\u202egnp": `\u202egnp`, "\xff": `\xff`, "grün\n\t→": "grün\n\t→"} {
		if got := Visible(s); got != want {
			t.Errorf("Visible(%q): got %q, want %q", s, got, want)
		}
	}
}

// A sentence quotes a name as a person would write it, and stays on its line. Only characters that a reader cannot see
// become escape sequences.
func TestQuoted(t *testing.T) {
	for s, want := range map[string]string{
		`Büro "Nord"`:               `“Büro "Nord"”`,
		`C:\orders\new`:             `“C:\orders\new”`,
		"日本語 ’x’":                   "“日本語 ’x’”",
		"a\x00b\xff\u202ec":         `“a\x00b\xff\u202ec”`,
		"a\r\nreprise: sent\t":      `“a\r\nreprise: sent\t”`,
		"":                          "“”",
		strings.Repeat("q", 255):    "“" + strings.Repeat("q", 255) + "”",
		strings.Repeat("q", 100000): "“" + strings.Repeat("q", 255) + "…”",
	} {
		if got := Quoted(s); got != want {
			t.Errorf("Quoted(%.20q): got %s, want %s", s, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`[a-z"'“”\\ ]{0,20}`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		).Draw(t, "s")
		got := Quoted(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return Odd(r) || unicode.IsControl(r) }) {
			t.Fatalf("Quoted(%q): got %q", s, got)
		}
		seen := strings.TrimSuffix(strings.TrimPrefix(got, "“"), "”")
		if hidden := strings.ContainsFunc(s, func(r rune) bool { return Odd(r) || unicode.IsControl(r) }) || !utf8.ValidString(s); !hidden && seen != Clip(s, 255) {
			t.Fatalf("Quoted(%q): got %s, want the text unchanged", s, got)
		}
	})
}

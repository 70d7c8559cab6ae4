package terminal

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{
		{"João Gilberto", 13, "João Gilberto"},
		{"João Gilberto", 6, "João…"}, // no space before the ellipsis
		{"東京都", 5, "東京…"},             // two columns each
		{"東京都", 4, "東…"},
		{"ab", 1, "…"},
	} {
		if got := Cut(tt.text, tt.width); got != tt.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := Wrap("one two three unbreakable six", 9)
	if want := []string{"one two", "three", "unbreakable", "six"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOneLineReplacesControls(t *testing.T) {
	if got, want := OneLine(" a\x1b[31m\n\tb\u202ec\xff\u2028d "), "a [31m bc\ufffd d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// WriteJSON escapes control characters without changing the decoded value.
func TestWriteJSON(t *testing.T) {
	for _, text := range []string{"", "ä\n\t\"", "\x1b[31m", "\u009b31m", "\x7f", "\u202eevil\u202c", "\u2028", "\U000e0001", "日本 👩"} {
		var b bytes.Buffer
		if err := WriteJSON(&b, map[string]string{text: text}); err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.TrimSuffix(b.String(), "\n") {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' {
				t.Errorf("%q contains %q", b.String(), r)
			}
		}
		var got map[string]string
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got[text] != text {
			t.Errorf("%q became %q: %v", text, b.String(), err)
		}
	}
}

package cause

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The first line of each file is the expected cause, or its beginning. The other lines are what a program of this language
// has printed.
func TestOfOutput(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d files, %v, want at least 20", len(files), err)
	}
	var noise strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&noise, "INFO step %d of the order\n", i)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, output, _ := strings.Cut(string(text), "\n")
			for what, output := range map[string]string{"alone": output, "after 1,000 lines": noise.String() + output} {
				if got := OfOutput(output); got != want && !strings.HasPrefix(got, want+" ") {
					t.Errorf("%s: got  %q\nwant %q", what, got, want)
				}
			}
		})
	}
}

func TestOfBody(t *testing.T) {
	for _, c := range []struct{ kind, body, want string }{
		{"application/json", `{"error":"card declined"}`, "card declined"},
		{"application/json", `{"error":{"code":402,"message":"card declined"}}`, "card declined"},
		{"application/json", `{"message":"card declined","code":"E17"}`, "card declined"},
		{"application/problem+json", `{"type":"about:blank","title":"Payment failed","detail":"card declined","status":402}`, "Payment failed: card declined"},
		{"application/problem+json", `{"title":"card declined"}`, "card declined"},
		{"application/json", `{"errors":[{"message":"card declined"}]}`, "card declined"},
		{"application/json", `{"errors":{"card":["card declined"]},"message":"The data is invalid."}`, "The data is invalid."},
		{"application/json", `{"detail":[{"loc":["body","card"],"msg":"card declined","type":"value_error"}]}`, "card declined"},
		{"application/json", `{"timestamp":"2026-11-28T14:00:00Z","status":500,"error":"Internal Server Error","message":"card declined"}`, "card declined: Internal Server Error"},
		{"application/json", `{"fault":{"faultstring":"card declined"}}`, "card declined"},
		{"application/json", `"card declined"`, "card declined"},
		{"application/json", `{"status":"no"}`, `{"status":"no"}`},
		{"application/json", "{\n \"error\": \"card decl", `{ "error": "card decl`},
		{"text/html; charset=utf-8", `<!DOCTYPE html><html><head><title>Error</title><style>p{}</style></head><body><h1>Oops</h1><p>card &amp; purse <b>declined</b></p><script>x()</script></body></html>`, "Oops card & purse declined"},
		{"text/html", `<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>`, "502 Bad Gateway nginx"},
		{"text/html", `<html><head><title>Error</title></head><body><pre>Error: card declined<br> &nbsp; &nbsp;at charge (/app/x.js:3:9)<br> &nbsp; &nbsp;at next (/app/y.js:1:2)</pre></body></html>`, "Error: card declined"},
		{"text/html", `<title>card declined</title>`, "card declined"},
		{"text/plain", "card declined\ncontact us", "card declined"},
		{"text/plain", "Traceback (most recent call last):\n  File \"/app/x.py\", line 1, in f\n    g()\nValueError: card declined\n", "ValueError: card declined"},
		{"", "", ""},
	} {
		if got, _ := OfBody(c.kind, []byte(c.body)); got != c.want {
			t.Errorf("%s %s:\ngot  %q\nwant %q", c.kind, c.body, got, c.want)
		}
	}
}

// A cause is one short line, whatever a program prints.
func TestCauseIsOneLine(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"\n", "\r\n", "  File \"x\"\n", "Traceback\n", "\tat x\n", "Caused by: ", "Caused by:\n", " ---> y\n", "panic: ", "a.rb:1:in `f': x (E)\n", "^\n", "Next ",
		"PHP Fatal error:  Uncaught ", "stack traceback:\n", "{\"error\":", "<b>", "\xff", "ü", strings.Repeat("x", 300),
	})
	rapid.Check(t, func(t *rapid.T) {
		output := strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"), "")
		body, _ := OfBody(rapid.SampledFrom([]string{"", "text/html", "application/json"}).Draw(t, "kind"), []byte(output))
		for _, got := range []string{OfOutput(output), body} {
			if strings.ContainsAny(got, "\r\n") || len(got) > 2*maxText+20 {
				t.Fatalf("cause of %q: got %q", output, got)
			}
		}
	})
}

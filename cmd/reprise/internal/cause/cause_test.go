package cause

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

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
		{"application/json", `{"data":null,"errors":[{"message":"card declined","locations":[{"line":2,"column":3}],"path":["charge"],"extensions":{"code":"DECLINED"}}]}`, "card declined"},
		{"application/problem+json", `{"type":"https://example.com/invalid","title":"Invalid order","status":422,"errors":[{"detail":"card declined","pointer":"#/card"}]}`, "Invalid order: card declined"},
		{"application/vnd.api+json", `{"errors":[{"status":"422","source":{"pointer":"/data/card"},"title":"Invalid card","detail":"card declined"}]}`, "Invalid card: card declined"},
		{"application/json", `{"error":"invalid_grant","error_description":"card declined"}`, "card declined: invalid_grant"},
		{"application/json", `{"error":{"code":400,"errors":[{"domain":"global","message":"card declined"}],"message":"card declined"}}`, "card declined"},
		{"application/json", `{"kind":"Status","status":"Failure","message":"card declined","reason":"Declined","code":402}`, "card declined"},
		{"application/x-amz-json-1.1", `{"__type":"com.example#Declined","Message":"card declined"}`, "card declined"},
		{"application/json", `{"status":"error","data":{"reason":"card declined"}}`, "card declined"},
		{"application/json", `{"errors":{"cvv":["is missing"],"card":["card declined"]}}`, "card: card declined"},
		{"application/json", `{"message":"{\"error\":\"card declined\"}"}`, "card declined"},
		{"application/json", `["card declined","purse empty"]`, "card declined"},
		{"application/json", `[{"path":"/card","message":"card declined"},{"message":"other"}]`, "card declined"},
		{"application/xml", `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>card declined</Message></Error>`, "SlowDown card declined"},
		{"text/xml; charset=utf-8", `<soap:Envelope><soap:Body><soap:Fault><faultcode>soap:Client</faultcode><faultstring>card &lt;declined&gt;</faultstring></soap:Fault></soap:Body></soap:Envelope>`, "soap:Client card <declined>"},
		{"text/html", "<br />\n<b>Fatal error</b>:  Uncaught Exception: card declined in /app/x.php:3\nStack trace:\n#0 {main}\n  thrown in <b>/app/x.php</b> on line <b>3</b><br />", "Exception: card declined"},
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

// Plain removes what only a terminal understands, and decodes the output of programs that write UTF-16.
func TestPlain(t *testing.T) {
	units := func(order binary.AppendByteOrder, text string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(text)) {
			b = order.AppendUint16(b, u)
		}
		return string(b)
	}
	const want = "card declined\nfor “ü”"
	for name, output := range map[string]string{
		"plain":            want,
		"colors":           "\x1b[0m\x1b[1;31mcard\x1b[0m declined\nfor \x1b[38;2;1;2;3m“ü”\x1b[m",
		"link, title":      "\x1b]0;charge\x07\x1b]8;;https://example.com\x1b\\card\x1b]8;;\x1b\\ declined\nfor “ü”",
		"cursor":           "\x1b[2K\x1b[1A\x1b7card declined\x1b(B\x1b=\nfor\b “ü”\a",
		"CRLF":             "card declined\r\nfor “ü”",
		"progress":         "card declined\rfor “ü”",
		"UTF-8 BOM":        "\ufeff" + want,
		"UTF-16 LE BOM":    units(binary.LittleEndian, "\ufeff"+want),
		"UTF-16 BE BOM":    units(binary.BigEndian, "\ufeff"+want),
		"UTF-16 LE no BOM": units(binary.LittleEndian, want),
		"UTF-16 BE no BOM": units(binary.BigEndian, want),
	} {
		if got := Plain([]byte(output)); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for output, want := range map[string]string{"a\x00b": "a\uFFFDb", "caf\xe9": "caf\uFFFD", "": "", "\x00": "\uFFFD", "\x1b[31": "[31"} {
		if got := Plain([]byte(output)); got != want {
			t.Errorf("%q: got %q, want %q", output, got, want)
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

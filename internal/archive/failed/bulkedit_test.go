package failed_test

import (
	"errors"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

func TestBulkEditOfBodies(t *testing.T) {
	const order = `{ "amount": 9.10, "to":"anna <a@x>" }`
	replace := func(old, with string) *failed.BulkEdit {
		return &failed.BulkEdit{Replace: []failed.Replacement{{Old: old, New: with}}}
	}
	regexp := func(old, with string) *failed.BulkEdit {
		return &failed.BulkEdit{Replace: []failed.Replacement{{Old: old, New: with, Regexp: true}}}
	}
	patch := func(text string) *failed.BulkEdit { return &failed.BulkEdit{Patch: text} }
	for _, c := range []struct {
		name string
		edit *failed.BulkEdit
		body string
		want string // the body, or the error
	}{
		{"patch", patch(`[{"op":"replace","path":"/amount","value":5.00}]`), order, `{ "amount": 5.00, "to":"anna <a@x>" }`},
		{"patch that changes nothing", patch(`[{"op":"replace","path":"/amount","value":9.10}]`), order, "the edit has no effect"},
		{"another form of a number is a change", patch(`[{"op":"replace","path":"/amount","value":9.1}]`), order, `{ "amount": 9.1, "to":"anna <a@x>" }`},
		{"patch without its path", patch(`[{"op":"remove","path":"/fee"}]`), order, "operation 1, remove: /fee is missing"},
		{"patch of text", patch(`[{"op":"remove","path":"/fee"}]`), "text", "body is not valid JSON"},
		{"patch of an empty body", patch(`[{"op":"remove","path":"/fee"}]`), "", "body is not valid JSON"},
		{"text", replace("anna", "ben"), "anna and anna", "ben and ben"},
		{"text of a formatted body", replace("{\n  \"amount\": 9.10,\n  \"to\"", `{"amount": 5, "to"`), order, `{"amount": 5, "to":"anna <a@x>" }`},
		{"compact text", replace(`9.10,"to": "anna <a@x>"`, `7,"to":"b"`), order, `{ "amount": 7,"to":"b" }`},
		{"formatted text from within a string", replace("<a@x>\"\n}", `x"}`), order, `{ "amount": 9.10, "to":"anna x"}`},
		{"formatted text twice", replace("\"a\": 1", `"a":2`), `[{"a":1},{"a" :1}]`, `[{"a":2},{"a":2}]`},
		{"white space in strings differs", replace(`"anna  <a@x>"`, `""`), order, `text “"anna  <a@x>"” not found`},
		{"structure in a string", replace(`{"a": 1}`, `{}`), `"{\"a\":1}"`, `text “{"a": 1}” not found`},
		{"formatted text in a body that is not JSON", replace(`"a": 1`, `"a":2`), `"a":1`, `text “"a": 1” not found`},
		{"missing text", replace("anna", "ben"), "carl", `text “anna” not found`},
		{"text in bytes", replace("anna", "ben"), "anna\xff", "body is not valid UTF-8"},
		{"text that invalidates JSON", replace(`"to"`, "to"), order, "edited body is not valid JSON"},
		{"text replaced by itself", replace("anna", "anna"), "anna", "the edit has no effect"},
		{"dollar sign in literal text", replace("anna", "$1"), "anna", "$1"},
		{"regular expression", regexp(`(\w+) <(\S+)>`, "$2 ${1}x $$"), "anna <a@x> ben <b@x>", "a@x annax $ b@x benx $"},
		{"regular expression without a match", regexp(`^b`, "x"), "anna", `regular expression “^b” not found`},
		{"regular expression with empty matches", regexp(`\b`, "|"), "ab c", "|ab| |c|"},
		{"too many matches", regexp(`a`, "b"), strings.Repeat("a", 10_001), `regular expression “a” found more than 10000 times`},
		{"too large", replace("a", strings.Repeat("b", 60_000)), strings.Repeat("a", 1000), "result is too large"},
		{"too large because of groups", regexp("(a+)", strings.Repeat("$1", 2000)), strings.Repeat("a", 20_000), "result is too large"},
		{"large body that shrinks", replace("ab", "b"), strings.Repeat("a", 17<<20) + "b", strings.Repeat("a", 17<<20-1) + "b"},
	} {
		before := failed.Content{Body: []byte(c.body)}
		got, err := c.edit.Apply(before, nil)
		text := string(got.Body)
		if err != nil {
			text = err.Error()
		}
		if text != c.want || string(before.Body) != c.body {
			t.Errorf("%s: got %.200q, want %.200q", c.name, text, c.want)
		}
		again, _ := c.edit.Apply(before, nil)
		if string(again.Body) != string(got.Body) {
			t.Errorf("%s: second result differs from the first", c.name)
		}
	}
}

func TestBulkEditOfHeaders(t *testing.T) {
	edit := &failed.BulkEdit{SetHeaders: topology.Table{"n": int64(5), "t": topology.Table{"x": "y"}}, RemoveHeaders: []string{"old", "none"}}
	before := failed.Content{Headers: topology.Table{"old": "1", "keep": int32(2)}, Body: []byte("\xff"), Properties: failed.Properties{ContentEncoding: "gzip"}}
	got := value(edit.Apply(before, nil))(t)
	if d := gocmp.Diff(topology.Table{"keep": int32(2), "n": int64(5), "t": topology.Table{"x": "y"}}, got.Headers); d != "" || len(before.Headers) != 2 {
		t.Error(d)
	}
	if _, err := edit.Apply(got, nil); err == nil || err.Error() != "the edit has no effect" {
		t.Errorf("second application: got error %v, want no change", err)
	}
}

func TestBulkEditRefusesEncodedBodiesAndSecrets(t *testing.T) {
	edit := &failed.BulkEdit{Replace: []failed.Replacement{{Old: "a", New: "b"}}, SpareSecrets: true, SendImpossible: true}
	_, err := edit.Apply(failed.Content{Body: []byte("a"), Properties: failed.Properties{ContentEncoding: "gzip"}}, nil)
	if err == nil || err.Error() != `the body has a content encoding (“gzip”)` {
		t.Error(err)
	}
	rules := []failed.Rule{{Header: "token"}, {Path: "card"}}
	for body, headers := range map[string]topology.Table{"a": {"Token": "s"}, `{"card":"4711","a":1}`: nil} {
		if _, err := edit.Apply(failed.Content{Body: []byte(body), Headers: headers}, rules); err == nil || !strings.Contains(err.Error(), "secrets") {
			t.Errorf("body %s: got error %v, want one about secrets", body, err)
		}
	}
	value(edit.Apply(failed.Content{Body: []byte(`{"a":1}`)}, rules))(t)
}

func TestBulkEditValidate(t *testing.T) {
	for _, edit := range []*failed.BulkEdit{
		{},
		{Patch: `[{"op":"replace"}]`},
		{Replace: []failed.Replacement{{New: "x"}}},
		{Replace: []failed.Replacement{{Old: "\xff"}}},
		{Replace: []failed.Replacement{{Old: "(", Regexp: true}}},
		{Replace: []failed.Replacement{{Old: "a*", Regexp: true}}},
		{Replace: []failed.Replacement{{Old: "(a)", New: "$1x", Regexp: true}}},
		{Replace: []failed.Replacement{{Old: "(a)", New: "${2}", Regexp: true}}},
		{Replace: []failed.Replacement{{Old: strings.Repeat("x", 70_000)}}},
		{Replace: make([]failed.Replacement, 21)},
		{RemoveHeaders: []string{""}},
		{RemoveHeaders: []string{"a", "a"}},
		{RemoveHeaders: []string{"a"}, SetHeaders: topology.Table{"a": "b"}},
		{RemoveHeaders: []string{"x-reprise-queue"}},
		{RemoveHeaders: []string{"x-death"}},
		{SetHeaders: topology.Table{"CC": []any{"q"}}},
		{SetHeaders: topology.Table{"a": make(chan int)}},
	} {
		if err := edit.Validate(); !errors.Is(err, failed.ErrInvalid) {
			t.Errorf("edit %+v: got error %v, want ErrInvalid", edit, err)
		}
	}
	valid := failed.BulkEdit{Replace: []failed.Replacement{{Old: "(?P<name>a)", New: "${name}$$5", Regexp: true}}}
	if err := valid.Validate(); err != nil {
		t.Error(err)
	}
}

func value[V any](v V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

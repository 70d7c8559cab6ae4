//go:build unix

package handler

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// environmentOf runs a program with configuration e and returns the environment that the program gets for m.
func environmentOf(t *testing.T, e ExecConfig, m *reprise.Delivery) map[string]string {
	t.Helper()
	e.Dir = t.TempDir()
	e.Command = []string{"sh", "-c", "env -0 > env"}
	if err := newExec(t, e).Handle(bounded(t), m); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(e.Dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for v := range strings.SplitSeq(string(b), "\x00") {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "REPRISE_") || strings.HasPrefix(name, "TEST_") {
			vars[name] = value
		}
	}
	return vars
}

func TestEnvironment(t *testing.T) {
	t.Setenv("REPRISE_BROKER_PASSWORD", "hush")
	t.Setenv("TEST_INHERITED", "yes")
	t.Setenv("TEST_REPLACED", "old")
	want := map[string]string{
		"TEST_INHERITED": "yes", "TEST_REPLACED": "new", "TEST_EMPTY": "",
		"REPRISE_QUEUE": "orders", "REPRISE_EXCHANGE": "shop", "REPRISE_ROUTING_KEY": "order.new",
		"REPRISE_ATTEMPT": "3", "REPRISE_MESSAGE_ID": "m-1", "REPRISE_CORRELATION_ID": "c-1",
		"REPRISE_REPLY_TO": "answers", "REPRISE_TYPE": "order", "REPRISE_APP_ID": "till", "REPRISE_USER_ID": "guest",
		"REPRISE_PRIORITY": "7", "REPRISE_TIMESTAMP": "2026-01-02T02:04:05Z", "REPRISE_EXPIRATION": "90000",
		"REPRISE_REDELIVERED": "true", "REPRISE_CONTENT_TYPE": "text/plain; charset=utf-8",
		"REPRISE_CONTENT_ENCODING": "identity", "REPRISE_FIRST_FAILED": "2026-01-02T03:05:00Z", "REPRISE_LAST_ERROR": "second",
		"REPRISE_HEADER_TENANT_ID": "acme", "REPRISE_HEADER_TRIES": "3",
	}
	got := environmentOf(t, ExecConfig{Env: []string{"TEST_REPLACED=new", "TEST_EMPTY="}}, full())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := environmentOf(t, ExecConfig{}, &reprise.Delivery{Queue: "q", Attempt: 1}); len(got) != 4 {
		t.Errorf("message without properties: got %v, want len 4", got)
	}
}

// Values that an environment variable cannot contain are omitted, and REPRISE_OMITTED lists their names. The omission
// does not affect other variables.
func TestEnvironmentOmitsInvalidValues(t *testing.T) {
	var log testkit.Buffer
	m := &reprise.Delivery{Message: reprise.Message{Type: "a\x00b", Headers: map[string]any{
		"a.b": "first", "a-b": "second", "NUL": "x\x00y", "big": strings.Repeat("x", maxVariable+1),
		"ok": "fine", "with\nline=break": "1\n2", "größe": "XL",
	}}, Queue: "q"}
	got := environmentOf(t, ExecConfig{Logger: textLog(&log)}, m)
	want := map[string]string{
		"REPRISE_QUEUE": "q", "REPRISE_HEADER_OK": "fine", "REPRISE_HEADER_A_B": "second",
		"REPRISE_HEADER_WITH_LINE_BREAK": "1\n2", "REPRISE_HEADER_GR__E": "XL",
		"REPRISE_OMITTED": "REPRISE_TYPE REPRISE_HEADER_NUL REPRISE_HEADER_A_B REPRISE_HEADER_BIG",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !strings.Contains(log.String(), "REPRISE_HEADER_BIG") {
		t.Errorf("log: got %s, want \"REPRISE_HEADER_BIG\"", log.String())
	}
}

// Because of the limits of the environment, a program starts regardless of the size of the headers.
func TestEnvironmentIsLimited(t *testing.T) {
	m := &reprise.Delivery{Message: reprise.Message{Headers: map[string]any{}}, Queue: "q"}
	for i := range 2000 {
		m.Headers[strings.Repeat("h", 200)+string(rune('a'+i%26))+time.Duration(i).String()] = strings.Repeat("v", 1000)
	}
	got := environmentOf(t, ExecConfig{}, m)
	size := 0
	for name, value := range got {
		size += len(name) + len(value)
	}
	if size > maxEnvironment+4096 || got["REPRISE_QUEUE"] != "q" || !strings.HasSuffix(got["REPRISE_OMITTED"], " ...") {
		t.Errorf("got %d bytes in %d variables, want at most %d", size, len(got), maxEnvironment+4096)
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  string
	}{
		{nil, ""},
		{"text", "text"},
		{[]byte("bytes"), "bytes"},
		{true, "true"},
		{int8(-3), "-3"},
		{uint32(math.MaxUint32), "4294967295"},
		{int64(math.MinInt64), "-9223372036854775808"},
		{float32(0.1), "0.1"},
		{1e100, "1e+100"},
		{math.Inf(1), "+Inf"},
		{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "2026-01-02T03:04:05Z"},
		{[]any{"a", int32(1), nil, true}, `["a",1,null,true]`},
		{
			topology.Table{
				"nested": map[string]any{"x": []any{}}, "bytes": []byte{0xff}, "text": []byte("é"),
				"nan": math.NaN(), "f": float32(0.5), "at": time.Unix(0, 0).UTC(), "odd": struct{ A int }{1},
			},
			`{"at":"1970-01-01T00:00:00Z","bytes":"/w==","f":0.5,"nan":"NaN","nested":{"x":[]},"odd":"{1}","text":"é"}`,
		},
	} {
		if got := Text(tt.value); got != tt.want {
			t.Errorf("%#v: got %q, want %q", tt.value, got, tt.want)
		}
	}
}

func TestVariableNames(t *testing.T) {
	names := slices.Sorted(maps.Keys(map[string]bool{
		variable(field{name: "x-Trace.ID 2", header: true}): true,
		variable(field{name: "", header: true}):             true,
		variable(field{name: "Routing-Key"}):                true,
	}))
	if diff := cmp.Diff([]string{"REPRISE_HEADER_", "REPRISE_HEADER_X_TRACE_ID_2", "REPRISE_ROUTING_KEY"}, names); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

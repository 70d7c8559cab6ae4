package handler

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
)

func TestTraceContext(t *testing.T) {
	const parent, state = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=x, other=y"
	for _, c := range []struct {
		headers     map[string]any
		traceparent string
		tracestate  string
	}{
		{map[string]any{"traceparent": parent, "tracestate": state}, parent, state},
		{map[string]any{"Traceparent": []byte(parent)}, parent, ""},
		{map[string]any{"Traceparent": strings.Replace(parent, "b7", "b8", 1), "traceparent": parent, "TRACEPARENT": strings.Replace(parent, "b7", "b9", 1)}, parent, ""},
		{map[string]any{"traceparent": parent + "\r\nX-Evil: 1", "tracestate": "a\nb"}, "", ""},
		{map[string]any{"traceparent": 17, "tracestate": ""}, "", ""},
		{nil, "", ""},
	} {
		var got http.Header
		h := service(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
		m := &reprise.Delivery{Message: reprise.Message{Headers: c.headers}, Queue: "q", Attempt: 1}
		if err := h.Handle(bounded(t), m); err != nil {
			t.Fatal(err)
		}
		if got.Get("Traceparent") != c.traceparent || got.Get("Tracestate") != c.tracestate || got.Get("X-Evil") != "" {
			t.Errorf("%v: got HTTP headers %v, want %q and %q", c.headers, got, c.traceparent, c.tracestate)
		}
		e := newExec(t, ExecConfig{Command: []string{"true"}})
		env := e.environment(t.Context(), m, logger(nil, m))
		slices.Reverse(env) // a program gets the last value
		for name, want := range map[string]string{"TRACEPARENT": c.traceparent, "TRACESTATE": c.tracestate} {
			env = slices.CompactFunc(env, func(a, b string) bool { return strings.HasPrefix(a, name+"=") && strings.HasPrefix(b, name+"=") })
			if has := slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") }); has != (want != "") || has && !slices.Contains(env, name+"="+want) {
				t.Errorf("%v: environment has %s: %v, want %q", c.headers, name, has, want)
			}
		}
	}
}

package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
)

// sent collects results of at most ten bytes.
func sent(into *[]Result) *Results {
	return &Results{Max: 10, Send: func(_ context.Context, _ *reprise.Delivery, r Result) error {
		*into = append(*into, r)
		return nil
	}}
}

func TestRepliesOfProcess(t *testing.T) {
	var none []Result
	for _, tt := range []struct {
		line    string
		results *Results
		want    string // the result, or the beginning of the error
	}{
		{`{"id":1,"result":"done"}`, sent(&none), "no result"},
		{`{"id":1,"result":"done","reply":null}`, nil, "no result"},
		{`{"id":1,"result":"done","reply":"a\nb"}`, sent(&none), "a\nb "},
		{`{"id":1,"result":"done","reply":""}`, sent(&none), " "},
		{`{"id":1,"result":"done","reply":{"a": 1}}`, sent(&none), `{"a": 1} application/json`},
		{`{"id":1,"result":"done","reply":17}`, sent(&none), `17 application/json`},
		{`{"id":1,"result":"done","reply_base64":"AAE="}`, sent(&none), "\x00\x01 "},
		{`{"id":1,"result":"done","reply":"x"}`, nil, "invalid answer: reply must be absent"},
		{`{"id":1,"result":"retry","reply":"x"}`, sent(&none), "invalid answer: reply must be in an answer with the result done"},
		{`{"id":1,"result":"done","reply":"x","reply_base64":"AAE="}`, sent(&none), "invalid answer: reply must be"},
		{`{"id":1,"result":"done","reply_base64":"?"}`, sent(&none), "invalid answer: reply_base64 is not base64"},
	} {
		a, err := parseAnswer([]byte(tt.line))
		if err != nil {
			t.Fatal(err)
		}
		got := "no result"
		if r, found := a.result(); found {
			got = string(r.Body) + " " + r.ContentType
		}
		if err := a.outcome(false, tt.results); err != nil {
			got = err.Error()[:min(len(tt.want), len(err.Error()))]
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.line, got, tt.want)
		}
	}
}

func TestResultsOfHTTP(t *testing.T) {
	type answer struct {
		status int
		body   string
	}
	for a, want := range map[answer]string{
		{200, "fine"}:        "fine text/plain; charset=utf-8",
		{202, ""}:            " ",
		{204, ""}:            "ack",
		{200, "12345678901"}: "park",
		{503, "busy"}:        "retry",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(a.status)
			_, _ = io.WriteString(w, a.body)
		}))
		var results []Result
		h := newHTTP(t, HTTPConfig{URL: s.URL, Results: sent(&results)})
		err := h.Handle(t.Context(), &reprise.Delivery{})
		got := kind(err)
		if len(results) == 1 {
			got = string(results[0].Body) + " " + results[0].ContentType
		}
		if got != want {
			t.Errorf("%v: got %q, error %v, want %q", a, got, err, want)
		}
		s.Close()
	}
}

// A program has a result only if it succeeds. An error of the receiver is the outcome, so that the message is not acknowledged.
func TestResultsOfExec(t *testing.T) {
	var results []Result
	run := func(r *Results, script string) error {
		t.Helper()
		e, err := NewExec(ExecConfig{Command: []string{"sh", "-c", script}, Results: r})
		if err != nil {
			t.Fatal(err)
		}
		return e.Handle(t.Context(), &reprise.Delivery{})
	}
	if err := run(sent(&results), "echo a; echo b"); err != nil {
		t.Error(err)
	}
	if err := run(sent(&results), "echo a; exit 1"); kind(err) != "retry" {
		t.Errorf("failed program: got %v, want a retry", err)
	}
	if err := run(sent(&results), "yes | head -c 100000"); kind(err) != "park" || !strings.Contains(err.Error(), "at most 10 bytes") {
		t.Errorf("large result: got %v, want it parked", err)
	}
	if diff := cmp.Diff([]Result{{Body: []byte("a\nb\n")}}, results); diff != "" {
		t.Errorf("results, -want +got:\n%s", diff)
	}
	away := fmt.Errorf("broker is away")
	if err := run(&Results{Max: 10, Send: func(context.Context, *reprise.Delivery, Result) error { return away }}, "true"); !errors.Is(err, away) {
		t.Errorf("receiver fails: got %v, want its error", err)
	}
}

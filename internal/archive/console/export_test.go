package console

import (
	"encoding/csv"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// The CSV file has a row for each message. No cell contains a formula, regardless of the separator that a spreadsheet
// program expects.
func TestExportCSV(t *testing.T) {
	a := newArchive(t, store.Config{Redact: []failed.Rule{{Header: "x-token"}}})
	texts := []string{
		"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r\n=1", " \u00a0=1", "＝1+1", "a;=1+1", "a;\"=1+1", "a\n=1", "a\t=1", "a|=1", "x,y \"quoted\"",
		"=HYPERLINK(\"http://a\",\"b\")", "\xff=1", "'=1", ";;=1", "timeout: -1",
	}
	for _, text := range texts {
		add(t, a, func(m *failed.Message) {
			m.Error, m.Reason, m.Queue, m.RoutingKey, m.Properties.MessageID = text, text, "q"+text, text, text
		})
	}
	list, secrets := tokens()
	d := newCheckedConsole(t, newConsole(t, Config{Archive: a, Tokens: list}))
	w := ask(t, d, "GET", "/api/v1/messages/export?format=csv&state=failed", nil, bearer(secrets[View]))
	if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind != "text/csv" || !strings.Contains(w.Header().Get("Content-Disposition"), "failed.csv") {
		t.Fatalf("got status %d, want 200, got type %s, want text/csv, header %v", w.Code, kind, w.Header())
	}
	rows, err := csv.NewReader(strings.NewReader(w.Body.String())).ReadAll()
	if err != nil || len(rows) != len(texts)+1 {
		t.Fatalf("rows: got %d, want %d; error %v", len(rows), len(texts)+1, err)
	}
	formula := regexp.MustCompile(`^[\s\p{Z}\p{Cc}"]*[=+\-@＝＋－＠]`)
	for _, row := range rows {
		for _, cell := range row {
			for _, separators := range []string{"", ";", "\t", "|", "\n", "\r"} {
				cells := strings.FieldsFunc(cell, func(r rune) bool { return strings.ContainsRune(separators, r) })
				for _, part := range cells {
					if formula.MatchString(part) {
						t.Errorf("with the separators %q, the cell %q contains the formula %q", separators, cell, part)
					}
				}
			}
		}
	}
	if got := rows[len(rows)-1][3]; got != "'=1+1" {
		t.Errorf("first error: got %q, want %q", got, "'=1+1")
	}
	one := ask(t, d, "GET", "/api/v1/messages/export?format=csv&id=14", nil, bearer(secrets[View])).Body.String()
	if !strings.Contains(one, `"x,y ""quoted"""`) || strings.Count(one, "\n") != 2 {
		t.Errorf("export of one message: got %s, want 2 lines with an escaped error", one)
	}
	refused(t, ask(t, d, "GET", "/api/v1/messages/export?format=xls", nil, bearer(secrets[View])), http.StatusBadRequest, "format=csv")
	refused(t, ask(t, d, "GET", "/api/v1/messages/export?format=csv&group=99", nil, bearer(secrets[View])), http.StatusNotFound, "group 99")

	page := ask(t, d.Console, "GET", "/messages", nil, bearer(secrets[View])).Body.String()
	if !strings.Contains(page, "format=csv&amp;state=failed") || strings.Contains(page, "format=jsonl") {
		t.Error("viewer: the page must offer CSV and must not offer JSON Lines")
	}
	if page := ask(t, d.Console, "GET", "/messages?text=HYPERLINK", nil, bearer(secrets[Admin])).Body.String(); !strings.Contains(page, "format=jsonl&amp;state=failed&amp;text=HYPERLINK") {
		t.Error("administrator: the page does not offer JSON Lines")
	}
}

func TestMessagePageLinksToTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for header, want := range map[string]string{
		parent: `href="https://traces.example.com/0af7651916cd43dd8448eb211c80319c?span=b7ad6b7169203331"`,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"00-../../-b7ad6b7169203331-01":                           "",
		"":                                                        "",
	} {
		c := newConsole(t, Config{TraceURL: "https://traces.example.com/{trace_id}?span={span_id}"})
		add(t, c.cfg.Archive, func(m *failed.Message) { m.Headers = topology.Table{"traceparent": header} })
		body := ask(t, c, "GET", "/messages/1", nil).Body.String()
		if has := strings.Contains(body, "traces.example.com"); has != (want != "") || !strings.Contains(body, want) {
			t.Errorf("header %q: has a link %v, want %q", header, has, want)
		}
	}
	for form, valid := range map[string]bool{
		"": true, "https://a/{trace_id}": true, "http://a:16686/trace/{trace_id}?s={span_id}": true,
		"https://a/": false, "javascript:{trace_id}": false, "/{trace_id}": false, "https://{trace_id}": true,
	} {
		cfg := Config{Archive: newArchive(t, store.Config{}), TraceURL: form}
		if err := cfg.Validate(); (err == nil) != valid {
			t.Errorf("TraceURL %q: got error %v", form, err)
		}
	}
}

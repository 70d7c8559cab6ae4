package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// Without --yes, a command that can change many messages asks, and obeys the answer, also if the answer comes from a
// pipe. Without an answer, it changes nothing.
func TestActionsAskUnlessYes(t *testing.T) {
	commands := map[string][]string{
		"failed replay":     {"--group", "3"},
		"failed discard":    {"--group", "3", "--reason", "x"},
		"failed undo":       {"--group", "3"},
		"failed erase":      {"--group", "3", "--reason", "x"},
		"failed purge":      {},
		"purge":             {"orders", "--reason", "x"},
		"waiting retry":     {"--queue", "orders"},
		"waiting postpone":  {"--queue", "orders", "--for", "1h"},
		"waiting park":      {"--queue", "orders", "--reason", "x"},
		"schedule cancel":   {"--key", "orders"},
		"schedule move":     {"--key", "orders", "--in", "1h"},
		"schedule send-now": {"--key", "orders"},
		"redrive":           nil, // needs a broker: see redrive.txtar
		"migrate":           nil, // needs a broker: see migrate.txtar
		"move":              nil, // needs brokers: see move.txtar
		"topology apply":    nil, // needs a broker: see topology-plan.txtar
		"keys park":         nil, // needs a broker: see keys.txtar
		"peek":              nil, // needs a broker, and takes nothing out: see peek.txtar
		"pause":             nil, // needs a broker: see up-lanes.txtar
	}
	parser, err := newParser(terminal.IO{Stdout: io.Discard, Stderr: io.Discard, Lookup: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	walk(parser.Model.Node, func(node *kong.Node) {
		name := strings.TrimPrefix(node.FullPath(), "reprise ")
		for _, f := range node.Flags {
			if _, ok := commands[name]; f.Name == "yes" && !ok {
				t.Errorf("%s has --yes but no test", name)
			}
		}
	})

	for name, args := range commands {
		if args == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				answer, flag string
				want         int // exit code
				acts         bool
			}{{"n\n", "", 3, false}, {"", "", 3, false}, {"\n", "", 3, false}, {"yes please\n", "", 3, false}, {"Y\n", "", 0, true}, {"", "--yes", 0, true}} {
				acts := 0
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodGet && r.URL.Query().Get("dry_run") == "" {
						acts++
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"messages":5,"selected":5,"done":5,"id":1,"state":"done","total":5,"sent":5}`)
				}))
				all := append(strings.Fields(name), args...)
				all = append(all, "--server", server.URL)
				if c.flag != "" {
					all = append(all, c.flag)
				}
				var out, errs bytes.Buffer
				code := Main(all, terminal.IO{Stdin: strings.NewReader(c.answer), Stdout: &out, Stderr: &errs, Lookup: func(string) (string, bool) { return "", false }})
				server.Close()
				if code != c.want || acts > 0 != c.acts {
					t.Errorf("answer %q, flag %q: exit code %d, %d acts; want %d, %v\n%s%s", c.answer, c.flag, code, acts, c.want, c.acts, &out, &errs)
				}
			}
		})
	}
}

// An act on the outbox is limited. The command says that other messages remain, because they leave.
func TestScheduleCommandsReportTheRest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("dry_run") != "" {
			_, _ = io.WriteString(w, `{"selected":10005,"done":0,"through":10005,"dry_run":true}`)
			return
		}
		_, _ = io.WriteString(w, `{"selected":10000,"done":10000}`)
	}))
	defer server.Close()
	for _, args := range []string{"schedule cancel --all", "schedule move --all --in 1h", "schedule send-now --all"} {
		var out, errs bytes.Buffer
		code := Main(append(strings.Fields(args), "--yes", "--server", server.URL), terminal.IO{Stdout: &out, Stderr: &errs, Lookup: func(string) (string, bool) { return "", false }})
		if code != 3 || !strings.Contains(out.String(), "10000 messages") || !strings.Contains(out.String(), "5 more match") {
			t.Errorf("%s: exit code %d, want 3\n%s%s", args, code, &out, &errs)
		}
	}
}

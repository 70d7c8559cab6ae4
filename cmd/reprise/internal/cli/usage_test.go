package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// run runs the command without environment variables and returns the exit code and the standard error.
func run(args ...string) (int, string) {
	var out, errs bytes.Buffer
	unset := func(string) (string, bool) { return "", false }
	code := Main(args, terminal.IO{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Lookup: unset})
	return code, errs.String()
}

// The error for an invalid command line is one line with a suggestion.
func TestUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"pblish":                                    "unexpected argument pblish, did you mean \"publish\"? (see reprise --help)",
		"publish --too orders x":                    "unknown flag --too, did you mean \"--to\"? (see reprise publish --help)",
		"publish x":                                 "a destination is required (use --to QUEUE, or --exchange NAME and --key KEY)",
		"publish --to orders --count 0 x":           "--count must be at least 1: got 0",
		"publish --to orders -H lang x":             "--header must be name=text or name:=JSON: got “lang”",
		"publish --to orders -H n:=x x":             "--header n must be JSON, such as 3, true or [\"a\"]: got “x”: invalid character 'x' looking for beginning of value",
		"publish --to orders --url rabbit:5672 x":   "cannot use this broker URL (it does not begin with amqp:// or amqps://); use amqp://user:password@host:5672/vhost, special characters percent-encoded (@ is %40, / is %2F, % is %25), further hosts of a cluster after commas",
		"publish --to orders --url http://rabbit x": "cannot use this broker URL (it does not begin with amqp:// or amqps://); use amqp://user:password@host:5672/vhost, special characters percent-encoded (@ is %40, / is %2F, % is %25), further hosts of a cluster after commas",
		"publish --to orders --expiration 30 x":     "--expiration: “30” is not a duration (examples: 500ms, 30s, 5m, 1h30m, 7d)",
		"publish --to orders -f none.json":          "-f: open none.json: no such file or directory",
		"publish --to orders --priority 300 x":      "--priority: “300” is not an integer from 0 to 255 (see reprise publish --help)",
		"publish --exchange shop --to orders x":     "--to and --exchange exclude each other",
		"up -c none.yaml":                           "file none.yaml not found (create it, or pass another file with -c FILE)",
		"broker --memory --data x":                  "--data and --memory exclude each other",
		"purge":                                     "<queue> is missing: work, wait or failed queue (see reprise purge --help)",
		"purge orders":                              "--reason TEXT is required (the audit log keeps the text)",
		"redrive":                                   "--from QUEUE is required, such as --from orders.failed",
		"redrive --from orders.failed --rate fast":  "--rate: “fast” is not a rate (examples: 10/s, 100/m, 5000/h) (see reprise redrive --help)",
		"pause":                       "<queue> is missing: work queue (see reprise pause --help)",
		"pause orders --for 3":        "--for: “3” is not a duration (examples: 500ms, 30s, 5m, 1h30m, 7d) (see reprise pause --help)",
		"policy --attempts 0":         "--attempts must be 1 to 1000000: got 0",
		"failed":                      "failed takes a command: ls, groups, show, replay, replays, edit, discard, undo, acts, merge, unmerge, regroup, mute, unmute, export, import, erase, purge (see reprise failed --help)",
		"failed ls --since yesterday": "--since: “yesterday” is not a time (write 2026-01-31T12:00:00Z, 2026-01-31, or how long ago: 90m, 24h, 7d) (see reprise failed ls --help)",
		"failed ls --since -1h":       "--since: “-1h” is not a time (write 2026-01-31T12:00:00Z, 2026-01-31, or how long ago: 90m, 24h, 7d) (see reprise failed ls --help)",
		"failed ls --limit -1":        "--limit must be at least 1, or 0 for all: got -1",
		"pause orders --for -5m":      "--for must be at least 1s: got -5m",
		"failed replay --rate -5/s":   "--rate: “-5/s” is not a rate (examples: 10/s, 100/m, 5000/h) (see reprise failed replay --help)",
		"broker --memory-limit -5MB":  "--memory-limit: “-5MB” is not a size (examples: 256MiB, 2GiB, or a number of bytes) (see reprise broker --help)",
		"policy --start -1h":          "--start takes a value: got -1h (write --start=-1h if this is the value) (see reprise policy --help)",
		"up -c --check":               "--config takes a value: got --check (write --config=--check if this is the value) (see reprise up --help)",
		"failed ls --header x":        "--header must be name=value: got “x”",
		"failed ls --state lost --server http://127.0.0.1:1": "--state must be one of \"failed\",\"replaying\",\"replayed\",\"discarded\",\"all\" but got \"lost\" (see reprise failed ls --help)",
		"failed ls --server http://127.0.0.1:1":              "cannot reach the console at http://127.0.0.1:1: connect: connection refused (start it with `reprise console`, or use --server)",
		"failed ls --server http://u:PW@127.0.0.1:1":         "cannot reach the console at http://127.0.0.1:1: connect: connection refused (start it with `reprise console`, or use --server)",
		"failed ls --server u:PW@127.0.0.1:1":                "--server: console must be a URL such as http://host:port or https://host: got “127.0.0.1:1”",
		"failed ls --server http://u:P%W@127.0.0.1:1":        "--server: console must be a URL such as http://host:port or https://host: got “http://127.0.0.1:1”",
		"failed ls --server http://u:P/W@127.0.0.1:1":        "--server: console must be a URL such as http://host:port or https://host: got “http://127.0.0.1:1”",
		"up --check -c a.yaml --log text --log json":         "--log must not occur twice (see reprise up --help)",
		"up --check -c a.yaml -c b.yaml":                     "file a.yaml not found (create it, or pass another file with -c FILE)",
		"failed ls --queue a --limit 1 --queue b":            "--queue must not occur twice (see reprise failed ls --help)",
		"failed ls --server localhost:15600":                 "--server: console must be a URL such as http://host:port or https://host: got “localhost:15600”",
		"failed replay --server http://127.0.0.1:1":          "a selection of messages is required (use IDs, --group, --queue, --error …, or --all)",
		"failed replay --all --rate 10":                      "--rate: “10” is not a rate (examples: 10/s, 100/m, 5000/h) (see reprise failed replay --help)",
		"failed replay --all --canary soon":                  "--canary: “soon” is not a duration (examples: 500ms, 30s, 5m, 1h30m, 7d) (see reprise failed replay --help)",
		"failed replay --all --patch {":                      "--patch must be a JSON array of operations, or @FILE: got “{”",
		"failed replay --all --replace a":                    "each --replace requires one --with: got --replace once, --with 0 times",
		"failed show x":                                      "<id>: “x” is not an integer, or too large (see reprise failed show --help)",
		"failed erase --all":                                 "--reason TEXT is required (the audit log keeps the text, so do not write personal data)",
		"failed ls --token-file none":                        "--token-file: open none: no such file or directory",
		"console --archive x.db":                             "failed queues are required (use --queue NAME for each, or --management URL to find all *.failed)",
		"mark":                                               "<text> is missing: description of the event, in one line (see reprise mark add --help)",
		"history --range year":                               "unknown flag --range (see reprise history --help)",
		"waiting retry":                                      "a selection of messages is required (use --queue, --group, --error …, or --all)",
		"notify test":                                        "file reprise.yaml not found (create it, or pass another file with -c FILE)",
		"completion tcsh":                                    "<shell> must be one of \"bash\",\"zsh\",\"fish\" but got \"tcsh\" (see reprise completion --help)",
	} {
		status := exit.CodeUsage
		if strings.HasPrefix(want, "cannot reach") {
			status = exit.CodeFailed
		}
		if code, got := run(strings.Fields(args)...); code != status || got != "reprise: "+want+"\n" {
			t.Errorf("reprise %s: got exit code %d, want %d\ngot  %swant reprise: %s", args, code, status, got, want)
		}
	}
}

// The error for an invalid configuration file contains the line and the column.
func TestConfigurationErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for file, want := range map[string]string{
		"":                              "1:1: the file is empty; write at least",
		"worker: []\n":                  "1:1: unknown key “worker” in the file: did you mean workers?",
		"workers:\n  - queue: orders\n": "2:5: a worker has no handler: add http: http://host:port/path, exec: [PROGRAM, ARGUMENT] or process: [PROGRAM, ARGUMENT]",
		"workers:\n  - exec: [cat]\n":   "2:5: a worker needs a queue: add queue: NAME (or preset: NAME)",
		"workers:\n  - queue: orders\n    exec: [cat]\n    http: http://127.0.0.1\n":          "3:5: a worker has two handlers, http and exec: keep one",
		"workers:\n  - queue: orders\n    exec: [cat]\n    concurency: 4\n":                   "4:5: unknown key “concurency” in a worker: did you mean concurrency?",
		"workers:\n  - queue: orders\n    exec: [cat]\n    concurrency: four\n":               "4:18: concurrency must be an integer from 1 to 10000: got a string",
		"workers:\n  - queue: orders\n    exec: [cat]\n    attempts: 0\n":                     "4:15: attempts must be at least 1: got 0",
		"workers:\n  - queue: orders\n    exec: [cat]\n    drain: 30\n":                       "4:12: drain must have a unit: got 30 (30s for seconds, 30m for minutes)",
		"workers:\n  - queue: orders\n    exec: [cat]\n    backoff: {initial: 1h, max: 1m}\n": "4:24: backoff.initial (1h) is longer than backoff.max (1m): swap them, or raise backoff.max",
		"workers:\n  - queue: orders\n    exec: [cat]\n    backoff: 5m\n":                     "4:14: backoff must be a mapping; write backoff: {fixed: 5m}, or {initial: 5m, factor: 2, max: 1h} for growing delays",
		"workers:\n  - queue: orders\n    exec: cat\n":                                        "3:11: exec must be a list of a program and its arguments; write exec: [cat], or for a shell: exec: [sh, -c, \"cat\"]",
		"workers:\n  - queue: orders\n    exec: [no-such-program]\n":                          "3:12: program no-such-program not found in the PATH (install it, or use its full path)",
		"workers:\n\t- queue: orders\n":                                                       "2:1: file is not valid YAML: tabs must not be used as indentation: use spaces",
		"broker: http://rabbit\nworkers:\n  - queue: orders\n    exec: [cat]\n":               "1:9: broker: cannot use this broker URL (it does not begin with amqp:// or amqps://); use amqp://user:password@host:5672/vhost, special characters percent-encoded (@ is %40, / is %2F, % is %25), further hosts of a cluster after commas",
		"broker: amqp://u:${NONE}@rabbit\nworkers:\n  - queue: orders\n    exec: [cat]\n":     "1:9: broker needs the environment variable NONE, which is not set: set it, or write ${NONE:-default}, or $${ for the characters ${",
		"broker: amqp://rabbit\ndata: d\nworkers:\n  - queue: orders\n    exec: [cat]\n":      "2:1: data is for the embedded broker, and broker: is the URL of another broker: remove one of the two",
		"workers:\n  - queue: orders\n    exec: [cat]\n  - queue: orders\n    exec: [cat]\n":  "4:5: queue “orders” has a worker on line 2: merge the workers, with concurrency: 2 or more",
		"workers:\n  - queue: orders\n    exec: [cat]\n    prefetch: 2\n    concurrency: 4\n": "4:15: prefetch (2) is less than concurrency (4), which leaves handlers idle: raise it, or remove it",
		"workers:\n  - queue: orders\n    exec: [cat]\n    duplicates: redis://x\n":           "4:17: duplicates is not a supported store; write memory, sqlite:PATH or postgres://user:password@host/database",
		"workers:\n  - queue: orders\n    exec: [cat]\narchive: failed.db\n":                  "4:10: archive is not a supported store; write sqlite:PATH or postgres://user:password@host/database",
		"workers:\n  - queue: orders\n    exec: [cat]\nconsole: 15600\n":                      "1:1: console requires an archive: add archive: sqlite:reprise-failed.db",
		"workers:\n  - queue: orders\n    exec: [cat]\n    rate: 10\n":                        "4:11: rate must have a unit: got 10 (10/s per second, 10/m per minute)",
		"workers:\n  - queue: orders\n    exec: [cat]\n    route: bucket\n":                   "4:12: route cannot be “bucket”: did you mean buckets?",
	} {
		if err := os.WriteFile("reprise.yaml", []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		code, got := run("up", "--check")
		if line, _, _ := strings.Cut(got, "\n"); code != exit.CodeUsage || line != "reprise.yaml:"+want {
			t.Errorf("%q: got exit code %d\ngot  %s\nwant reprise.yaml:%s", file, code, line, want)
		}
	}
}

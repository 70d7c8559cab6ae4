package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/backoff"
)

// with returns a lookup function for the given variables.
func with(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := variables[name]
		return v, ok
	}
}

// References work in every scalar: numbers, booleans, durations, names and paths, with and without quotes.
func TestReferencesInEveryScalar(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("from a file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `
listen: 127.0.0.1:${PORT}
data: ${DIR}/data
announce: ${NO}
metrics: ${METRICS:-127.0.0.1:9999}
workers:
  - queue: "${DIR}.${PORT}"
    http: {url: 'http://${HOST}/$${x}', timeout: "${TIME}", headers: {Authorization: "Bearer ${file:token}"}}
    concurrency: ${N}
    attempts: "${N}"
    rate: {limit: "${N}/s", burst: "${N}"}
    backoff: {fixed: "${ABSENT:-5m}"}
  - queue: b
    exec: [sh, -c, "echo ${N} $${HOME}", "${N}"]
`
	c, err := Parse(filepath.Join(dir, "x.yaml"), []byte(text), with(map[string]string{
		"PORT": "5601", "DIR": "orders", "NO": "false", "HOST": "h:1", "TIME": "2s", "N": "7", "METRICS": "",
	}))
	if err != nil {
		t.Fatal(err)
	}
	w := c.Workers[0]
	for _, x := range []struct{ name, got, want string }{
		{"listen", c.Listen.Addr, "127.0.0.1:5601"},
		{"data", c.Data, filepath.Join(dir, "orders/data")},
		{"metrics", c.Metrics, "127.0.0.1:9999"},
		{"queue", w.Queue, "orders.5601"},
		{"url", w.HTTP.URL, "http://h:1/${x}"},
		{"header", w.HTTP.Headers[0].Value, "Bearer from a file"},
		{"exec", strings.Join(c.Workers[1].Exec.Command, "|"), "sh|-c|echo 7 ${HOME}|7"},
	} {
		if x.got != x.want {
			t.Errorf("%s: got %q, want %q", x.name, x.got, x.want)
		}
	}
	if !c.Silent || w.Concurrency != 7 || w.Policy.MaxAttempts != 7 || w.HTTP.Timeout != 2*time.Second {
		t.Errorf("got silent %v, concurrency %d, attempts %d, timeout %s; want true, 7, 7, 2s", c.Silent, w.Concurrency, w.Policy.MaxAttempts, w.HTTP.Timeout)
	}
	if w.Policy.Backoff != backoff.Fixed(5*time.Minute) {
		t.Errorf("backoff: got %v, want 5m", w.Policy.Backoff)
	}
}

// A secret that is at the wrong place, is missing or does not fit is reported once, without the secret.
func TestProblemsOfReferences(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "\n", "large": strings.Repeat("x", maxSecret+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"concurrency: ${SECRET}":                         "concurrency must be an integer from 1 to",
		"settle: '${PREFIX}${SECRET}'":                   "got “${PREFIX}${SECRET}”",
		"drain: ${SECRET}":                               "drain: “${SECRET}” is not a duration",
		"settle: ${SECRET}":                              "settle must be publish-then-ack or ack-then-publish: got “${SECRET}”",
		"rate: '${SECRET}/s'":                            "rate: “${SECRET}/s” is not a rate",
		"concurrency: ${ABSENT}":                         "concurrency needs the environment variable ABSENT, which is not set: set it, or write ${ABSENT:-default}",
		"concurrency: '${file:absent}'":                  "concurrency needs the file absent: no such file or directory (create it, or write another path",
		"concurrency: '${file:empty}'":                   "concurrency needs the file empty, which is empty: write the value to it",
		"concurrency: '${file:large}'":                   "concurrency needs the file large, which exceeds 65536 bytes",
		"concurrency: '${file:/dev/zero}'":               "concurrency needs the file /dev/zero, which exceeds 65536 bytes",
		"concurrency: '${file:}'":                        "concurrency has ${file:} without a path",
		"concurrency: ${":                                "concurrency has ${ without }",
		"failed_queue: '${SECRET:-${ABSENT}}'":           "failed_queue has ${ in the default of SECRET, which cannot contain a reference",
		"bind: [{exchange: '${ABSENT}', key: '${NO-}'}]": "key has ${…} without the name of an environment variable",
	} {
		_, err := Parse(filepath.Join(dir, "x.yaml"), []byte("workers:\n  - queue: a\n    exec: [x]\n    "+line+"\n"), with(map[string]string{"SECRET": "hush-hush", "PREFIX": "hush"}))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
		if p, ok := err.(*Problems); ok && len(p.List) != strings.Count(line, "ABSENT}', key")+1 {
			t.Errorf("%s: got %d problems, want 1:\n%v", line, len(p.List), err)
		}
	}
}

// A user and a password reach the broker as they are, whatever they contain. A variable with a whole URL, or with the user
// and the password together, stays as it is.
func TestReferencesInURLs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		user, password := rapid.StringN(1, 20, -1).Draw(t, "user"), rapid.StringN(1, 20, -1).Draw(t, "password")
		variables := map[string]string{"U": user, "P": password}
		c, err := Parse("x.yaml", []byte("broker: amqp://${U}:${P}@rabbit:5673/v\nworkers: [{queue: a, exec: [x]}]"), with(variables))
		if err != nil {
			t.Fatal(err)
		}
		got, err := amqp.ParseURI(c.Broker)
		if err != nil {
			t.Fatal(err)
		}
		if got.Username != user || got.Password != password || got.Host != "rabbit" || got.Vhost != "v" {
			t.Errorf("got user %q, password %q, host %q", got.Username, got.Password, got.Host)
		}
	})
	for written, want := range map[string]string{
		"${URL}":                      "amqp://u:p%2F@h",
		"amqp://${BOTH}@h":            "amqp://u:p%2F@h",
		"amqp://u:${P}@h/v?x=${P}@":   "", // an unknown parameter
		"amqp://${HOST}:5672/${P}":    "amqp://h:5672/a/b",
		"amqp://u:${file:p}@${HOST}/": "",
	} {
		c, err := Parse("x.yaml", []byte("broker: "+written+"\nworkers: [{queue: a, exec: [x]}]"), with(map[string]string{"URL": "amqp://u:p%2F@h", "BOTH": "u:p%2F", "P": "a/b", "HOST": "h"}))
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: accepted as %s", written, c.Broker)
		case want != "" && (err != nil || c.Broker != want):
			t.Errorf("%s: got %v %v, want %s", written, c, err, want)
		}
	}
}

// A configuration reads a variable or a file once, so that its values and the comparison of a reload agree, also if the content
// changes meanwhile, and a pipe can be a secret.
func TestReferencesAreReadOnce(t *testing.T) {
	reads := 0
	c, err := Parse("x.yaml", []byte("broker: amqp://${U}:${U}@h\nworkers: [{queue: '${U}', exec: ['${U}']}]"), func(string) (string, bool) {
		reads++
		return "app", true
	})
	if err != nil || c.Broker != "amqp://app:app@h" || reads != 1 {
		t.Errorf("got %v, %v, %d readings, want 1", c, err, reads)
	}
}

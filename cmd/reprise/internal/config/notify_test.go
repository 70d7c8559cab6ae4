package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/archive"
)

const notifyRest = "\narchive: sqlite:failed.db\nconsole: 127.0.0.1:15600\nworkers: [{queue: a, exec: [b]}]\n"

func TestNotify(t *testing.T) {
	t.Setenv("WEBHOOK_URL", "https://hooks.example.com/T000/hush") // LoadNotify reads the environment
	lookup := func(name string) (string, bool) {
		if name == "WEBHOOK_URL" {
			return "https://hooks.example.com/T000/hush", true
		}
		return environment(name)
	}
	for text, notify := range map[string]archive.Notify{
		"notify: [{url: 'http://127.0.0.1:8080/'}]": {Webhooks: []archive.Webhook{{URL: "http://127.0.0.1:8080/", Format: "json"}}},
		"notify: {webhooks: [{url: '${WEBHOOK_URL}', format: slack, events: [new-group, breaker-open]}], gather: 1m, cooldown: 2h, growth: 7}": {
			Webhooks: []archive.Webhook{{URL: "https://hooks.example.com/T000/hush", Format: "slack", Events: []string{"new-group", "breaker-open"}}},
			Gather:   time.Minute, Cooldown: 2 * time.Hour, Growth: 7,
		},
		"notify: [{url: 'https://a/', secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}]": {
			Webhooks: []archive.Webhook{{URL: "https://a/", Format: "json", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
		},
	} {
		want := &Notify{Notify: notify, CACertFiles: []string{""}}
		c, err := Parse("test.yaml", []byte(text+notifyRest), lookup)
		if err != nil {
			t.Errorf("%s:\n%v", text, err)
			continue
		}
		if diff := cmp.Diff(want, c.Notify); diff != "" {
			t.Errorf("%s: -want +got:\n%s", text, diff)
		}
		// Test the same file, and a file that contains only the webhooks.
		for _, text := range []string{text + notifyRest, text + "\nconsole: {url: 'https://ops/reprise'}\n"} {
			path := filepath.Join(t.TempDir(), "some.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			n, console, err := LoadNotify(path)
			if diff := cmp.Diff(want, n); err != nil || diff != "" || strings.Contains(text, "ops") != (console == "https://ops/reprise") {
				t.Errorf("%s: console %q, error %v, -want +got:\n%s", text, console, err, diff)
			}
		}
	}
}

func TestNotifyProblems(t *testing.T) {
	for text, want := range map[string]string{
		"notify: []":                      "notify must not be an empty list",
		"notify: {}":                      "notify has no webhooks: add webhooks: [{url: https://example.com/reprise}]",
		"notify: [{format: json}]":        "a webhook needs a url",
		"notify: [{url: 'ftp://a/hush'}]": "url must start with https:// or http:// and a host",
		"notify: [{url: 'https://a/', format: discord}]":           `format must be json, slack or teams: got “discord”`,
		"notify: [{url: 'https://a/', events: [new-groups]}]":      "did you mean new-group?",
		"notify: [{url: 'https://a/', events: []}]":                "events must not be an empty list",
		"notify: [{url: 'https://a/', secret: hush}]":              "secret must be whsec_ and 24 to 64 bytes in base64",
		"notify: [{url: 'https://a/', secret: whsec_hush}]":        "secret must be whsec_",
		"notify: [{url: '${ABSENT}'}]":                             "needs the environment variable ABSENT",
		"notify: [{url: 'https://a/'}, {url: 'https://a/'}]":       "two webhooks have the same url",
		"notify: [{url: 'https://a/', event: [new-group]}]":        "did you mean events?",
		"notify: {webhooks: [{url: 'https://a/'}], gather: 5}":     "notify.gather",
		"notify: {webhooks: [{url: 'https://a/'}], cooldown: 10s}": "cooldown must be at least 5m",
		"notify: {webhooks: [{url: 'https://a/'}], growth: 0}":     "must be at least 1",
	} {
		_, err := Parse("test.yaml", []byte(text+notifyRest), environment)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v\nwant %s", text, err, want)
		}
	}
	_, err := Parse("test.yaml", []byte("notify: [{url: 'https://a/'}]\nworkers: [{queue: a, exec: [b]}]\n"), environment)
	if err == nil || !strings.Contains(err.Error(), "add archive: ") {
		t.Errorf("notifications without an archive: got %v, want advice to add an archive", err)
	}
	_, err = Parse("test.yaml", []byte("notify: [{url: 'https://a/'}]\narchive: sqlite:a.db\nworkers: [{queue: a, exec: [b]}]\n"), environment)
	if err == nil || !strings.Contains(err.Error(), "add console: ") {
		t.Errorf("notifications without a console: got %v, want advice to add a console", err)
	}
	_, err = Parse("test.yaml", []byte("console: {url: 'https://hush@ops/'}\narchive: sqlite:a.db\nworkers: [{queue: a, exec: [b]}]\n"), environment)
	if err == nil || !strings.Contains(err.Error(), "without a user") || strings.Contains(err.Error(), "hush") {
		t.Errorf("console URL with a user: got %v, want an error that hides the user", err)
	}
}

// LoadNotify accepts files with all other keys of a configuration.
func TestLoadNotifyExample(t *testing.T) {
	for _, name := range []string{"WEBHOOK_TOKEN", "WEBHOOK_SECRET"} {
		v, _ := environment(name)
		t.Setenv(name, v)
	}
	n, console, err := LoadNotify(filepath.Join("..", "..", "..", "..", "docs", "reprise.example.yaml"))
	if err != nil || len(n.Webhooks) != 2 || console != "https://ops.example.com/reprise" {
		t.Errorf("got %+v, console %q, want %q; error %v", n, console, "https://ops.example.com/reprise", err)
	}
}

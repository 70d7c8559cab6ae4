package config

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/internal/archive/notification"
	"github.com/reprisemq/reprise/internal/pemfile"
)

// Notify configures the webhooks for notifications. ReadAuthorities sets their Authorities.
type Notify struct {
	archive.Notify
	CACertFiles []string // PEM file with the authorities of each webhook's certificate, or ""
}

// webhook is a webhook with its PEM file.
type webhook struct {
	archive.Webhook
	caCertFile string
}

// LoadNotify reads the webhooks and the console URL from files, as Load does. The URL is "" if the files do not set it. LoadNotify
// ignores the values of other keys, but reports unknown top-level keys.
func LoadNotify(paths ...string) (n *Notify, console string, err error) {
	files, err := readFiles(paths)
	if err != nil {
		return nil, "", err
	}
	r := &report{}
	if f, ok := r.top(files, os.LookupEnv); ok {
		f.asked = append(f.asked, "broker", "listen", "data", "metrics", "telemetry", "announce", "archive", "cron", "exchanges", "outbox", "schedule", "workers")
		if x, found := f.get("console"); found && x.isMapping() {
			if c, ok := x.fields("console"); ok {
				read(c, "url", &console, value.consoleURL)
			}
		}
		if !read(f, "notify", &n, value.notify) {
			f.missing("notify has no webhooks; write at least\nnotify:\n  - url: https://example.com/reprise", "notify")
		}
		f.finish()
	}
	if len(r.problems) > 0 {
		return nil, "", r.sorted()
	}
	return n, console, nil
}

// notify reads a list of webhooks, or a mapping with such a list.
func (v value) notify() (*Notify, bool) {
	n := &Notify{}
	v.short("notify", "webhooks", "[{url: https://example.com/reprise}]", func(x value) {
		all, _ := list("a list of webhooks such as [{url: https://example.com/reprise}]", mapping("a webhook", (*fields).webhook))(x)
		for _, w := range all {
			if slices.ContainsFunc(n.Webhooks, func(other archive.Webhook) bool { return other.URL == w.URL }) {
				x.fail("two webhooks have the same url: merge them")
			}
			n.Webhooks, n.CACertFiles = append(n.Webhooks, w.Webhook), append(n.CACertFiles, w.caCertFile)
		}
	}, func(f *fields) {
		read(f, "gather", &n.Gather, duration(time.Second))
		read(f, "cooldown", &n.Cooldown, duration(5*time.Minute))
		read(f, "growth", &n.Growth, integer(1, 1_000_000_000))
	})
	return n, true
}

// ReadAuthorities reads the files of the webhooks' authorities.
func (n *Notify) ReadAuthorities() error {
	for i, file := range n.CACertFiles {
		if file == "" {
			continue
		}
		w := &n.Webhooks[i]
		var err error
		if w.Authorities, err = pemfile.Authorities(file); err != nil {
			return fmt.Errorf("webhook %s: %w", (&notification.Webhook{URL: w.URL}).Name(), err)
		}
	}
	return nil
}

// webhook reads a receiver of notifications.
func (f *fields) webhook(w *webhook) {
	w.Format = string(notification.JSON)
	if !read(f, "url", &w.URL, value.httpURL) {
		f.missing("a webhook needs a url: add url: https://example.com/reprise", "url")
	}
	read(f, "format", &w.Format, oneOf(string(notification.JSON), string(notification.Slack), string(notification.Teams)))
	read(f, "cacertfile", &w.caCertFile, path("ca.pem"))
	f.with("secret", func(x value) {
		var ok bool
		if w.Secret, ok = x.text("whsec_…"); !ok {
			return
		}
		if err := (&notification.Webhook{URL: "http://localhost", Format: notification.JSON, Secret: w.Secret}).Validate(); err != nil {
			x.fail("%s: %v", x.name, err) // the error does not contain the URL
		}
	})
	var kinds []string
	for _, k := range notification.Kinds() {
		kinds = append(kinds, string(k))
	}
	read(f, "events", &w.Events, list("a list of events such as [new-group, replay-stopped]", oneOf(kinds...)))
}

// httpURL reads a URL that may contain a secret. Errors never contain the URL.
func (v value) httpURL() (string, bool) {
	s, ok := v.address("https://example.com/reprise")
	if !ok {
		return "", false
	}
	if u, err := url.Parse(s); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", v.fail("%s must start with https:// or http:// and a host", v.name)
	}
	return s, true
}

// consoleURL reads the external URL of the console.
func (v value) consoleURL() (string, bool) {
	s, ok := v.text("https://ops.example.com/reprise")
	if !ok {
		return "", false
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", v.fail("%s must be the URL of the console, such as https://ops.example.com/reprise, without a user, ? and #", v.name)
	}
	return s, true
}

package notification

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// A receiver that hangs does not delay the messages of other receivers. Reported events that were not sent survive a
// restart of the process.
func TestRun(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *env) {
		hung := make(chan struct{}, 9)
		slow := serve(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
			hung <- struct{}{}
			<-r.Context().Done()
		})
		got := make(chan struct{}, 9)
		fast := serve(t, nil)
		n := h.notifier(Webhook{URL: slow.URL, Format: JSON}, Webhook{URL: fast.URL, Format: JSON})
		h.poll(0, n)
		h.addGroups(1)
		h.poll(10*time.Second, n)
		h.poll(30*time.Second, n)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			n.cfg.Sent, n.cfg.Logger = func(string) { got <- struct{}{} }, slog.New(slog.DiscardHandler)
			n.Run(ctx)
			close(ended)
		}()
		<-hung
		<-got
		cancel()
		<-ended
		if stored := h.stored(); stored != 1 {
			t.Errorf("got %d stored messages, want only the message to the receiver that hangs", stored)
		}
	})
}

// While the archive is unavailable, the notifier reports only that the archive is unavailable. Other events wait.
func TestNotifierWithoutDatabase(t *testing.T) {
	h := &env{t: t, dialect: sqlkit.SQLite, now: noon, unread: errors.New("not open")}
	dir := t.TempDir()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "absent", "test.db"))
	check(t, err)
	t.Cleanup(func() { db.Close() })
	h.db = db
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	n := h.notifier(Webhook{URL: s.URL, Format: JSON})
	n.Report(BreakerOpen, "queue/orders", "The circuit breaker of orders is open", "")
	for range 100 { // the database becomes unavailable repeatedly
		n.Report(StoreUnavailable, "store/archive", "The archive cannot be used", "file not found")
		h.poll(10*time.Second, n)
		h.send(n)
	}
	if got := s.requests(); got != 2 {
		t.Fatalf("got %d requests, want one and its retry", got)
	}
	var d document
	check(t, json.Unmarshal(s.bodies[1], &d))
	if d.Data.Counts[StoreUnavailable] != 1 || len(d.Data.Counts) != 1 {
		t.Errorf("got message %+v, want only StoreUnavailable", d.Data)
	}
	if reported := n.webhooks[0].reported; len(reported) != 1 || reported[0].Kind != BreakerOpen {
		t.Errorf("unstored events: got %+v, want BreakerOpen", reported)
	}
	if got := strings.Count(h.log.String(), "notifications wait for their database"); got != 1 {
		t.Errorf("got %d log records, want 1: %s", got, h.log.String())
	}
}

func TestReportedEventsAreStored(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *env) {
		s := serve(t, nil)
		n := h.notifier(Webhook{URL: s.URL, Format: JSON, Events: []Kind{BreakerOpen}})
		h.unread = errors.New("not open yet")
		h.poll(0, n)
		h.unread = nil
		h.poll(time.Second, n)
		if log := h.log.String(); strings.Contains(log, "wait for their database") || !strings.Contains(log, "msg=notifications webhooks=") {
			t.Errorf("log at the start: got %s, want no warning and the webhooks", log)
		}
		h.reading, h.unread = nil, errors.New("no answer")
		n.Report(BreakerOpen, "queue/orders", "The circuit breaker of orders is open", "")
		n.Report(BreakerOpen, "queue/orders", "The circuit breaker of orders is open", "")
		n.Report(TimeoutNear, "queue/orders", "not chosen", "")
		h.poll(0, n)
		h.reading, h.unread = reading(0), nil
		n = h.notifier(n.cfg.Webhooks...) // after a restart
		h.poll(30*time.Second, n)
		h.send(n)
		var d document
		if s.requests() == 1 {
			check(t, json.Unmarshal(s.bodies[0], &d))
		}
		if len(d.Data.Events) != 1 || d.Data.Counts[BreakerOpen] != 1 || d.Data.Events[0].URL != "https://ops.example.com/reprise/groups?queue=orders" {
			t.Errorf("got %d requests and message %+v, want 1 event with its URL", s.requests(), d.Data)
		}
	})
}

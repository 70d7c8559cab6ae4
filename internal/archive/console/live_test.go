package console

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
)

// A page receives an event for each archived message, even if the server has short timeouts.
func TestLiveSendsEvents(t *testing.T) {
	c := newConsole(t, Config{})
	s := httptest.NewUnstartedServer(c)
	s.Config.ReadTimeout, s.Config.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	s.Start()
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("Content-Type: got %s, want text/event-stream", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	for what := range 2 {
		add(t, c.cfg.Archive, nil)
		heard := false
		for !heard && lines.Scan() {
			heard = lines.Text() == "event: archive"
		}
		if !heard {
			t.Fatalf("no event for message %d: %v", what+1, lines.Err())
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// After a logout, a page does not receive further events.
func TestLiveEndsWithSession(t *testing.T) {
	list, _ := tokens()
	c := newConsole(t, Config{Tokens: list})
	id := c.server.Guard.Sessions.Begin(access.Token(list[0]))
	s := httptest.NewServer(c)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: access.SessionCookie, Value: id})
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "retry:") {
		t.Fatal(lines.Text(), lines.Err())
	}
	c.server.Guard.Sessions.End(id)
	add(t, c.cfg.Archive, nil)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "changed") {
			t.Error("page received an event after the logout")
		}
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
	http.DefaultClient.CloseIdleConnections()
}

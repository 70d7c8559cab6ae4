package console

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/console/internal/figures"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// If the management API is not reachable, pages report that there are no live figures, but otherwise work.
func TestConsoleWorksWithoutManagement(t *testing.T) {
	if _, err := figures.NewBroker(mgmtapi.API{}).Queues(t.Context()); !errors.Is(err, figures.ErrNoFigures) {
		t.Error(err)
	}
	s := httptest.NewServer(nil)
	s.Close()
	c := newConsole(t, Config{Management: &mgmtapi.API{URL: s.URL}})
	add(t, c.cfg.Archive, nil)
	for path, text := range map[string]string{"/": "No live figures.", "/topology": "No live figures."} {
		if w := ask(t, c, "GET", path, nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), text) {
			t.Errorf("GET %s: got status %d, want 200; body %s", path, w.Code, w.Body)
		}
	}
}

// An unexpected value in the figures of a queue makes only its cell unknown. RabbitMQ 4.3.6 describes the statistics of a
// queue that has only had a basic.get as an empty list.
func TestPagesContainUnexpectedFigures(t *testing.T) {
	for odd, want := range map[string]string{
		`"messages_ready":4,"messages_unacknowledged":1,"consumers":2,"message_stats":[]`:                                       "odd 5 0 – 0 2 0",
		`"messages_ready":4,"messages_unacknowledged":1,"consumers":0,"message_stats":"none"`:                                   "odd 5 – – 0 none 0",
		`"messages_ready":"4","messages_unacknowledged":1,"consumers":2,"message_stats":{}`:                                     "odd – 0 – 0 2 0",
		`"messages_ready":null,"messages_unacknowledged":null,"consumers":null,"message_stats":null`:                            "odd – 0 – 0 – 0",
		`"messages_ready":4,"messages_unacknowledged":1,"consumers":{},"message_stats":{"publish_details":{"rate":[]}}`:         "odd 5 – – 0 – 0",
		`"messages_ready":4,"messages_unacknowledged":1,"consumers":1e99,"arguments":[],"message_stats":{"publish_details":[]}`: "odd 5 0 – 0 – 0",
		`"messages_ready":4,"messages_unacknowledged":1,"consumers":2,"arguments":"?","message_stats":{"publish":"?"}`:          "odd 5 0 – 0 2 0",
	} {
		management := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/api/queues") {
				_, _ = w.Write([]byte(`[]`))
				return
			}
			_, _ = w.Write([]byte(`[{"name":"odd",` + odd + `},{"name":"orders","messages_ready":11,"messages_unacknowledged":2,"consumers":1,"message_stats":{"publish_details":{"rate":40}}}]`))
		}))
		c := newConsole(t, Config{Archive: newArchive(t, store.Config{}), Management: &mgmtapi.API{URL: management.URL}})
		page := text(ask(t, c, "GET", "/", nil).Body.String())
		for _, row := range []string{want, "orders 13 40 – 0 1 0"} {
			if !strings.Contains(page, row) {
				t.Errorf("overview with {%s}: got %s, want %q", odd, page, row)
			}
		}
		page = text(ask(t, c, "GET", "/topology", nil).Body.String())
		if !strings.Contains(page, "11 ready, 2 unacked") || !strings.Contains(page, "odd") {
			t.Errorf("topology with {%s}: got %s, want \"11 ready, 2 unacked\" and the queue odd", odd, page)
		}
		management.Close()
	}
}

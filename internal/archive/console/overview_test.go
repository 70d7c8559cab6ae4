package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// Retried and parked messages are also acknowledged, but not processed.
func TestOverviewCountsOnlySuccesses(t *testing.T) {
	management := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/queues") {
			_, _ = w.Write([]byte(`[]`))
			return
		}
		_, _ = w.Write([]byte(`[{"name":"orders","messages_ready":3,"consumers":1,"message_stats":{"publish_details":{"rate":40},"ack_details":{"rate":30}}}]`))
	}))
	defer management.Close()
	overview := func(b *fakeLedger) string {
		t.Helper()
		c := newConsole(t, Config{Archive: newArchive(t, store.Config{}), Ledger: b.Ledger, Management: &mgmtapi.API{URL: management.URL}})
		w := ask(t, c, "GET", "/", nil)
		return strings.Join(strings.Fields(tags.ReplaceAllString(w.Body.String(), " ")), " ")
	}
	b := newFakeLedger(t)
	b.queues["orders"] = ledger.Figures{Published: 1200, Messages: 0}
	for _, event := range []struct {
		kind reprise.EventKind
		n    int
	}{{reprise.EventDone, 60}, {reprise.EventRetried, 300}, {reprise.EventParked, 100}} {
		for range event.n {
			b.book.Observe(reprise.Event{Kind: event.kind, Queue: "orders"})
		}
	}
	if err := b.book.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.sample(2)
	if page := overview(b); !strings.Contains(page, "Processed per second 2.0 40 incoming") {
		t.Errorf("overview after 60 successes in 30 s: got %s, want \"Processed per second 2.0 40 incoming\"", page)
	}
	b.sample(4)
	if page := overview(b); !strings.Contains(page, "Processed per second 0 40 incoming") {
		t.Errorf("overview after 30 s without successes: got %s, want \"Processed per second 0 40 incoming\"", page)
	}
	if page := overview(&fakeLedger{}); strings.Contains(page, "Processed per second") {
		t.Errorf("overview without a ledger shows successes: %s", page)
	}
}

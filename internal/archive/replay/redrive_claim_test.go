package replay

import (
	"errors"
	"net/url"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A publisher can write x-death. A redrive believes it only if the queue that it names dead-letters to the failed queue.
func TestRedriveVerifiesDeaths(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		w := archivetest.NewWire(t, b.URL)
		from := w.Queue("dead", nil)
		direct := w.Queue("direct", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": from})
		other := w.Queue("other", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "elsewhere"})
		for _, queue := range []string{direct, other} {
			death := topology.Table{"queue": queue, "reason": "rejected", "exchange": "", "routing-keys": []any{queue}, "count": int64(1)}
			w.Publish(from, map[string]any{"x-death": []any{death}}, queue)
		}
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 2 })
		u, err := url.Parse(b.URL)
		archivetest.Must(t, err)
		password, _ := u.User.Password()
		m := mgmtapi.API{URL: api, User: u.User.Username(), Password: password}
		cfg := RedriveConfig{From: from, Routing: Routing{Bindings: m.Topology, Queue: m.Declaration}, Believe: func(string) bool { return false }}
		_, all, err := LookBeforeRedrive(t.Context(), w.Client, cfg)
		archivetest.Must(t, err)
		for _, d := range all {
			if d.Claimed != (d.Queue == other) {
				t.Errorf("preview: got %+v", d)
			}
		}
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 2 })
		done, err := redriveFrom(t.Context(), w.Client, cfg)
		if e, ok := errors.AsType[*ClaimError](err); !ok || e.Queue != other || done.Sent != 1 || len(all) != 2 {
			t.Errorf("got %+v, %v, and %d destinations, want a ClaimError for %s", done, err, len(all), other)
		}
	})
}

package workertest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A worker warns once about an existing work queue from which the broker can remove messages.
func TestRisksOfExistingQueue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		queue topology.Queue
		want  []string // the beginnings of the risks
	}{
		{name: "plain"},
		{name: "quorum", queue: topology.Queue{Args: topology.Table{"x-queue-type": "quorum"}}},
		{name: "own", queue: topology.Buckets{}.Topology("own").Queues[0]},
		{
			name: "TTL", queue: topology.Queue{Args: topology.Table{"x-message-ttl": 60000}},
			want: []string{"x-message-ttl: the broker drops messages that wait longer than 1m0s"},
		},
		{
			name: "TTL with dead letters", queue: topology.Queue{Args: topology.Table{"x-message-ttl": 60000, "x-dead-letter-exchange": "late", "x-queue-type": "quorum"}},
			want: []string{`x-message-ttl: the broker dead-letters to exchange “late” messages that wait`},
		},
		{
			name: "length", queue: topology.Queue{Args: topology.Table{"x-max-length": 1000, "x-max-priority": 5}},
			want: []string{"x-max-length: the broker drops the oldest message for each new message above 1000 messages"},
		},
		{
			name: "bytes", queue: topology.Queue{Args: topology.Table{"x-max-length-bytes": 1 << 20, "x-overflow": "drop-head", "x-queue-type": "quorum"}},
			want: []string{"x-max-length-bytes: the broker drops the oldest message for each new message above 1048576 bytes"},
		},
		{name: "publishers wait", queue: topology.Queue{Args: topology.Table{"x-max-length": 1000, "x-overflow": "reject-publish"}}},
		{
			name: "expires", queue: topology.Queue{Args: topology.Table{"x-expires": 3600000}},
			want: []string{"x-expires: the broker deletes the queue and its messages 1h0m0s after"},
		},
		{
			name: "deleted", queue: topology.Queue{AutoDelete: true},
			want: []string{"auto-delete: the broker deletes the queue and its messages when the last consumer stops"},
		},
		{
			name: "all", queue: topology.Queue{AutoDelete: true, Args: topology.Table{"x-message-ttl": 1, "x-max-length": 2, "x-max-length-bytes": 3, "x-expires": 60000, "x-single-active-consumer": true}},
			want: []string{"x-message-ttl: ", "x-max-length: ", "x-max-length-bytes: ", "x-expires: ", "auto-delete: "},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				c := dial(t, b.URL)
				r := newRaw(t, b.URL)
				queue, _ := r.names(topology.Buckets{})
				config := reprise.WorkerConfig{Queue: queue, Handler: newScript(nil)}
				worker, err := reprise.NewWorker(c.Client, config)
				if err != nil {
					t.Fatal(err)
				}
				if risks, err := worker.Risks(t.Context()); len(risks) > 0 || err != nil {
					t.Errorf("got risks %q and error %v of a missing queue, want none", risks, err)
				}
				if _, err := c.Depth(t.Context(), queue); err == nil {
					t.Error("Risks has declared the queue")
				}
				foreign := tc.queue
				foreign.Name = queue
				if tc.name == "own" {
					foreign = topology.Buckets{}.Topology(queue).Queues[0]
					foreign.IfAbsent = false
				}
				if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{foreign}}); err != nil {
					t.Fatal(err)
				}
				risks, err := worker.Risks(t.Context())
				if err != nil || !begin(risks, tc.want) {
					t.Errorf("got risks %q and error %v, want %q", risks, err, tc.want)
				}
				start(t, c, config)
				if len(tc.want) == 0 {
					return
				}
				c.log.wait(t, "work queue can lose messages", 1)
				if log := c.log.String(); !strings.Contains(log, "risks="+tc.want[0]) {
					t.Errorf("no %q in\n%s", tc.want[0], log)
				}
			})
		})
	}
}

// With the management API, a worker also warns about policies, and without the configure permission.
func TestRisksOfPolicies(t *testing.T) {
	t.Parallel()
	for _, b := range testkit.RabbitMQs() {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			b.Require(t)
			api := b.ManagementURL(t)
			queue := newRaw(t, b.URL).declareQueue()
			set := func(method, path, body string, want int) {
				t.Helper()
				r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, api+"/api/"+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.SetBasicAuth("guest", "guest")
				answer, err := testkit.HTTPClient(t).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if answer.StatusCode != want {
					t.Errorf("%s %s returned %s, want %d", method, path, answer.Status, want)
				}
			}
			set(http.MethodPut, "policies/%2F/"+queue, `{"pattern":"^`+queue+`$","apply-to":"queues","definition":{"message-ttl":86400000,"max-length":5000}}`, http.StatusCreated)
			t.Cleanup(func() { set(http.MethodDelete, "policies/%2F/"+queue, "", http.StatusNoContent) })
			management := mgmtapi.API{URL: api, User: "guest", Password: "guest", Client: testkit.HTTPClient(t)}
			c := dial(t, b.URL, func(c *reprise.Config) { c.Inspect = management.Declaration })
			worker, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: queue, Handler: newScript(nil)})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"x-message-ttl: the broker drops messages that wait longer than 24h0m0s", "x-max-length: "}
			testkit.Eventually(t, timeout, func() error { // policies take effect later
				if risks, err := worker.Risks(t.Context()); err != nil || !begin(risks, want) {
					return fmt.Errorf("got risks %q and error %v, want %q", risks, err, want)
				}
				return nil
			})
		})
	}
}

// begin reports whether each text begins with its counterpart.
func begin(texts, beginnings []string) bool {
	if len(texts) != len(beginnings) {
		return false
	}
	for i, text := range texts {
		if !strings.HasPrefix(text, beginnings[i]) {
			return false
		}
	}
	return true
}

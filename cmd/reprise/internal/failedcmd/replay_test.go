package failedcmd

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
)

// The question of a replay names the queue, if all messages go to the same queue.
func TestReplayQuestionNamesQueue(t *testing.T) {
	orders, mails := api.Destination{Queue: "orders", Messages: 1}, api.Destination{Queue: "mails", Messages: 1}
	for want, all := range map[string][]api.Destination{
		"Send 1 message to orders?":                 {orders},
		"Send 2 messages to their original queues?": {orders, mails},
	} {
		p := api.Preview{Done: api.Done{Messages: int64(len(all))}, Destinations: all}
		if got := new(replayCmd).question(p); got != want {
			t.Errorf("question for %v: got %q, want %q", all, got, want)
		}
	}
}

func TestReplayTextReportsCanary(t *testing.T) {
	r := api.Replay{ID: 1, State: "done", Total: 20, Sent: 20, Succeeded: 20, Plan: api.Plan{Canary: api.Duration(time.Minute)}}
	const want = "replay 1 done: canary passed, 20 of 20 messages sent, 20 succeeded"
	if got := replayText(r); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

package ordered_test

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/ordered"
)

// If a process was active, then another process became the owner, and then the first process is active again before the
// queue has stored its claim, its first deliveries are obsolete, because the other owner may have settled them.
func TestOwnerDoesNotLoadDeliveriesOfEarlierTerm(t *testing.T) {
	now := time.UnixMilli(1000)
	p := ordered.New(ordered.Config{Owner: "second", Lease: time.Second, Patience: time.Minute, MaxHeld: 10, MaxBytes: 10})
	tag := uint64(0)
	deliver := func(r ordered.Record) (actions []ordered.Action) {
		tag++
		p.Held(now, ordered.Delivery{Tag: tag, Redelivered: r.Owner != "second"}, r)
		return p.Actions()
	}
	deliver(ordered.Record{Kind: ordered.Copy, Owner: "first", Epoch: 7, Key: "k", Seq: ordered.Seq{Epoch: 7, Number: 1}, Version: 1})
	deliver(ordered.Record{Kind: ordered.Marker, Owner: "first", Epoch: 7})
	deliver(ordered.Record{Kind: ordered.Claim, Owner: "third", Epoch: 8})
	deliver(ordered.Record{Kind: ordered.Marker, Owner: "third", Epoch: 9})
	actions := deliver(ordered.Record{Kind: ordered.Claim, Owner: "second", Epoch: 1000})
	if actions[0] != (ordered.AckHeld{Tag: 2}) {
		t.Errorf("got %v, want an ack of the first owner's marker, so that the next load succeeds", actions)
	}
	if _, resigned := actions[len(actions)-1].(ordered.Resign); !resigned {
		t.Errorf("got %v, want a resignation", actions)
	}
}

// An owner that cannot know whether it still owns the partition starts no attempt before the held queue has returned its proof.
func TestOwnerStartsNothingWithoutProof(t *testing.T) {
	now := time.UnixMilli(1000)
	p := ordered.New(ordered.Config{Owner: "a", Lease: time.Second, Patience: time.Minute, MaxHeld: 10, MaxBytes: 10})
	tag := uint64(0)
	held := func(r ordered.Record) []ordered.Action {
		tag++
		p.Held(now, ordered.Delivery{Tag: tag}, r)
		return p.Actions()
	}
	held(ordered.Record{Kind: ordered.Join, Owner: "a"})
	held(ordered.Record{Kind: ordered.Claim, Owner: "a", Epoch: 1000})
	held(ordered.Record{Kind: ordered.Marker, Owner: "a", Epoch: 1001})
	held(ordered.Record{Kind: ordered.Proof, Owner: "a", Epoch: 1001})
	now = now.Add(500 * time.Millisecond)
	p.Received(now, ordered.Delivery{Tag: 1}, "k")
	start, isStart := p.Actions()[0].(ordered.Start)
	if !isStart {
		t.Fatalf("got no start within the lease")
	}
	now = now.Add(time.Minute) // the process was suspended
	if p.Begin(now, start.Entry) != ordered.Denied {
		t.Fatal("an attempt has started after the lease")
	}
	if got := p.Actions(); len(got) != 1 || got[0] != (ordered.RequeueHeld{Tag: 4}) {
		t.Fatalf("got %v, want that the proof is requeued", got)
	}
	p.Held(now, ordered.Delivery{Tag: 5, Redelivered: true}, ordered.Record{Kind: ordered.Proof, Owner: "a", Epoch: 1001})
	actions := p.Actions()
	if start, isStart = actions[len(actions)-1].(ordered.Start); !isStart || p.Begin(now, start.Entry) != ordered.Granted {
		t.Errorf("got %v, want a start after the proof", actions)
	}
}

// If an attempt fails while the effect of a request is being stored, the failure is stored next.
func TestOwnerKeepsFailureDuringRequest(t *testing.T) {
	now := time.UnixMilli(1000)
	p := ordered.New(ordered.Config{Owner: "a", Lease: time.Minute, Patience: time.Minute, MaxHeld: 10, MaxBytes: 10, CrashLimit: 3})
	tag := uint64(0)
	held := func(r ordered.Record, message any) []ordered.Action {
		tag++
		p.Held(now, ordered.Delivery{Tag: tag, Message: message}, r)
		return p.Actions()
	}
	last := func(actions []ordered.Action) any { return actions[len(actions)-1] }
	copied := func(actions []ordered.Action, content string) ordered.Record {
		t.Helper()
		x, ok := last(actions).(ordered.Publish)
		if !ok || x.Record.Kind != ordered.Copy || x.Message != content {
			t.Fatalf("got %+v, want a copy of %s", actions, content)
		}
		return x.Record
	}
	held(ordered.Record{Kind: ordered.Join, Owner: "a"}, nil)
	held(ordered.Record{Kind: ordered.Claim, Owner: "a", Epoch: 1000}, nil)
	held(ordered.Record{Kind: ordered.Marker, Owner: "a", Epoch: 1001}, nil)
	held(ordered.Record{Kind: ordered.Proof, Owner: "a", Epoch: 1001}, nil)
	p.Received(now, ordered.Delivery{Tag: 1, Message: "original"}, "k")
	e := last(p.Actions()).(ordered.Start).Entry
	p.Finished(now, e, ordered.Result{Retry: true, Due: now, Message: "first failure"})
	if _, started := last(held(copied(p.Actions(), "first failure"), "first failure")).(ordered.Start); !started {
		t.Fatal("the second attempt has not started")
	}
	request := held(ordered.Record{Kind: ordered.Request, Owner: "1", Key: "k", Act: ordered.ParkFirst, By: "alice"}, nil)
	p.Finished(now, e, ordered.Result{Retry: true, Due: now.Add(time.Hour), Message: "second failure"})
	stored := held(copied(request, "first failure"), "first failure")
	r := copied(stored, "second failure")
	if r.By != "alice" || !r.Due.Equal(now.Add(time.Hour)) {
		t.Errorf("got %+v, want the second failure, parked by alice", r)
	}
	if a, parks := last(held(r, "second failure")).(ordered.Park); !parks || a.By != "alice" {
		t.Error("the message is not parked")
	}
}

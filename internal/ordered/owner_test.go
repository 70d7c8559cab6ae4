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

// An owner that cannot know whether it still owns the partition starts no attempt before the held queue has returned a marker.
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
	now = now.Add(500 * time.Millisecond)
	p.Received(now, ordered.Delivery{Tag: 1}, "k")
	start, isStart := p.Actions()[0].(ordered.Start)
	if !isStart {
		t.Fatalf("got no start within the lease")
	}
	now = now.Add(time.Minute) // the process was suspended
	if p.Begin(now, start.Entry) {
		t.Fatal("an attempt has started after the lease")
	}
	if got := p.Actions(); len(got) != 1 || got[0] != (ordered.Publish{Record: ordered.Record{Kind: ordered.Marker, Owner: "a", Epoch: 1001}}) {
		t.Fatalf("got %v, want a marker", got)
	}
	actions := held(ordered.Record{Kind: ordered.Marker, Owner: "a", Epoch: 1001})
	if start, isStart = actions[len(actions)-1].(ordered.Start); !isStart || !p.Begin(now, start.Entry) {
		t.Errorf("got %v, want a start after the marker", actions)
	}
}

package reprise

import (
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// ackBroker is RabbitMQ's side of acknowledging: a tag it does not wait for closes
// the channel.
type ackBroker struct {
	unacked []uint64 // in order
	frames  int
	told    map[uint64]verb // but for acks
}

var errUnknownTag = errors.New("unknown delivery tag")

func (b *ackBroker) Ack(tag uint64, multiple bool) error {
	b.frames++
	for i, t := range b.unacked {
		if t != tag {
			continue
		}
		if multiple {
			b.unacked = b.unacked[i+1:]
		} else {
			b.unacked = append(b.unacked[:i:i], b.unacked[i+1:]...)
		}
		return nil
	}
	return errUnknownTag
}

func (b *ackBroker) Nack(tag uint64, multiple, requeue bool) error {
	if multiple || !requeue {
		return errors.New("not a giving back")
	}
	b.told[tag] = givenBack
	return b.Ack(tag, false)
}

func (b *ackBroker) Reject(tag uint64, requeue bool) error {
	b.told[tag] = deadLettered
	if requeue {
		b.told[tag] = requeued
	}
	return b.Ack(tag, false)
}

func (b *ackBroker) Sync() error { return nil }

func write(p *prefix, batch []settlement) error {
	if err := p.take(batch); err != nil {
		return err
	}
	_, err := p.writeRun()
	return err
}

func TestAcksSettleExactlyWhatIsSettled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &ackBroker{told: map[uint64]verb{}}
		p := newPrefix(b, nil)
		open := []uint64{} // delivered and not settled
		settled := 0
		var tag uint64
		said := map[uint64]verb{}
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			for range rapid.IntRange(0, 5).Draw(t, "deliveries") {
				tag++
				open = append(open, tag)
				b.unacked = append(b.unacked, tag)
			}
			var batch []settlement
			for range rapid.IntRange(0, len(open)).Draw(t, "settlements") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				s := settlement{tag: open[i], verb: rapid.SampledFrom([]verb{acked, acked, acked, givenBack, requeued, deadLettered}).Draw(t, "verb")}
				if s.verb != acked {
					said[s.tag] = s.verb
				}
				open = append(open[:i:i], open[i+1:]...)
				batch = append(batch, s)
			}
			settled += len(batch)
			if err := write(p, batch); err != nil {
				t.Fatal(err)
			}
			round := rapid.SampledFrom([]string{"pause goes on", "pause is over", "all"}).Draw(t, "round")
			if round != "pause goes on" {
				pauses := map[string]int{"pause is over": rapid.IntRange(0, 3).Draw(t, "pauses")}[round]
				if err := p.writeBeyond(pauses, math.MaxInt); err != nil {
					t.Fatal(err)
				}
			}
			if round == "all" && len(p.beyond) > 0 {
				t.Fatalf("%v were not written", p.beyond)
			}
			untold := slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(open), maps.Keys(p.beyond))))
			if diff := cmp.Diff(untold, b.unacked, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("unsettled, or settled beyond a gap, -want +broker:\n%s", diff)
			}
			if gaps := len(p.told.end); gaps > len(untold) {
				t.Fatalf("%d ranges remembered for %d deliveries that the broker waits for", gaps, len(untold))
			}
			if b.frames > settled {
				t.Fatalf("%d frames for %d settlements", b.frames, settled)
			}
		}
		if diff := cmp.Diff(said, b.told); diff != "" {
			t.Fatalf("not acked, -want +broker:\n%s", diff)
		}
		if len(open) == 0 && len(p.beyond) == 0 && len(p.told.end) != 0 {
			t.Fatalf("remembers %v, though all is settled", p.told)
		}
	})
}

// journal records frames.
type journal struct{ frames []string }

func (j *journal) Ack(tag uint64, multiple bool) error {
	suffix := ""
	if multiple {
		suffix = " multiple"
	}
	j.frames = append(j.frames, "ack "+string(rune('0'+tag))+suffix)
	return nil
}

func (j *journal) Nack(tag uint64, _, _ bool) error {
	j.frames = append(j.frames, "nack "+string(rune('0'+tag)))
	return nil
}

func (j *journal) Reject(tag uint64, _ bool) error {
	j.frames = append(j.frames, "reject "+string(rune('0'+tag)))
	return nil
}

func (j *journal) Sync() error {
	j.frames = append(j.frames, "sync")
	return nil
}

func TestAcksAreCoalescedWhereTheyAreContiguous(t *testing.T) {
	var j journal
	p := newPrefix(&j, nil)
	for _, batch := range [][]settlement{
		{{tag: 2}, {tag: 1}, {tag: 3}, {tag: 7}, {tag: 5}},
		{{tag: 4}},
		{{tag: 6, verb: givenBack}},
		{{tag: 8}},
		{{tag: 9}},
		nil,
	} {
		if err := errors.Join(write(p, batch), p.writeBeyond(1, math.MaxInt)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"ack 3 multiple", "ack 5 multiple", "ack 7", "nack 6", "ack 8", "ack 9"}
	if diff := cmp.Diff(want, j.frames); diff != "" {
		t.Error(diff)
	}
	if p.floor != 9 || len(p.told.end) != 0 {
		t.Errorf("floor %d, remembered %v", p.floor, p.told)
	}
}

type deadChannel struct{}

func (deadChannel) Ack(uint64, bool) error        { return errUnknownTag }
func (deadChannel) Nack(uint64, bool, bool) error { return errUnknownTag }
func (deadChannel) Reject(uint64, bool) error     { return errUnknownTag }
func (deadChannel) Sync() error                   { return errUnknownTag }

func TestAnAckIsKnownToBeDone(t *testing.T) {
	var j journal
	a := newAcker(&j)
	a.ack(1)
	done := make(chan bool)
	go func() { done <- a.ackNow(2) }()
	go a.run(t.Context())
	if !<-done {
		t.Error("the broker has done it, and it is not known")
	}
	a.end()
	<-a.done
	if last := j.frames[len(j.frames)-1]; last != "sync" {
		t.Errorf("wrote %v, and did not wait for the broker", j.frames)
	}

	a = newAcker(deadChannel{})
	go func() { done <- a.ackNow(1) }()
	go a.run(t.Context())
	if <-done {
		t.Error("the channel is gone, and an ack is said to be done")
	}
}

func TestAckerEnds(t *testing.T) {
	t.Run("when told, with everything written", func(t *testing.T) {
		var j journal
		a := newAcker(&j)
		a.ack(1)
		a.ack(3)
		a.end()
		a.run(t.Context())
		if diff := cmp.Diff([]string{"ack 1", "ack 3"}, j.frames); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("when its channel is gone", func(t *testing.T) {
		a := newAcker(deadChannel{})
		a.ack(1)
		a.run(t.Context())
		a.ack(2) // nobody listens, nobody waits
	})
}

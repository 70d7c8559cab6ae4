package reprise

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
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
	for seed := range uint64(200) {
		settleAtRandom(t, rand.New(rand.NewPCG(seed, 0)))
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func settleAtRandom(t *testing.T, random *rand.Rand) {
	b := &ackBroker{told: map[uint64]verb{}}
	p := newPrefix(b, nil)
	var open []uint64 // delivered and not settled
	settled := 0
	var tag uint64
	said := map[uint64]verb{}
	for range 1 + random.IntN(30) {
		for range random.IntN(6) {
			tag++
			open = append(open, tag)
			b.unacked = append(b.unacked, tag)
		}
		var batch []settlement
		for range random.IntN(len(open) + 1) {
			i := random.IntN(len(open))
			s := settlement{tag: open[i], verb: []verb{acked, acked, acked, givenBack, requeued, deadLettered}[random.IntN(6)]}
			if s.verb != acked {
				said[s.tag] = s.verb
			}
			open = append(open[:i:i], open[i+1:]...)
			batch = append(batch, s)
		}
		settled += len(batch)
		if err := write(p, batch); err != nil {
			t.Error(err)
			return
		}
		switch random.IntN(3) { // 0: the pause goes on
		case 1: // the pause is over
			if err := p.writeBeyond(random.IntN(4), math.MaxInt); err != nil {
				t.Error(err)
			}
		case 2: // all acks are written
			if err := p.writeBeyond(0, math.MaxInt); err != nil {
				t.Error(err)
			}
			if len(p.beyond) > 0 {
				t.Errorf("%v were not written", p.beyond)
			}
		}
		untold := slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(open), maps.Keys(p.beyond))))
		if !slices.Equal(untold, b.unacked) {
			t.Errorf("unsettled, or settled beyond a gap: %v, the broker waits for %v", untold, b.unacked)
		}
		if gaps := len(p.told.end); gaps > len(untold) {
			t.Errorf("%d ranges remembered for %d deliveries that the broker waits for", gaps, len(untold))
		}
		if b.frames > settled {
			t.Errorf("%d frames for %d settlements", b.frames, settled)
		}
	}
	if !maps.Equal(said, b.told) {
		t.Errorf("not acked: %v, the broker was told %v", said, b.told)
	}
	if len(open) == 0 && len(p.beyond) == 0 && len(p.told.end) != 0 {
		t.Errorf("remembers %v, though all is settled", p.told)
	}
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
	if !slices.Equal(want, j.frames) {
		t.Errorf("got %q, want %q", j.frames, want)
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
		if !slices.Equal([]string{"ack 1", "ack 3"}, j.frames) {
			t.Errorf("got %q", j.frames)
		}
	})
	t.Run("when its channel is gone", func(t *testing.T) {
		a := newAcker(deadChannel{})
		a.ack(1)
		a.run(t.Context())
		a.ack(2) // nobody listens, nobody waits
	})
}

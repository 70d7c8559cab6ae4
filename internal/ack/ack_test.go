package ack

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// channelModel models how RabbitMQ settles deliveries. An ack of a tag that is not unacked closes the channel.
type channelModel struct {
	unacked []uint64 // in order
	frames  int

	consumer map[uint64]uint64 // by delivery tag
	commands uint64            // see Commands
	settled  map[uint64]Verb   // settlements other than acks
}

var errUnknownTag = errors.New("unknown delivery tag")

func (b *channelModel) Ack(tag uint64, multiple bool) error {
	b.frames++
	for i, t := range b.unacked {
		if t != tag {
			continue
		}
		b.commands++
		if multiple {
			for j := range i { // one command per consumer, whose deliveries follow each other here
				if b.consumer[b.unacked[j]] != b.consumer[b.unacked[j+1]] {
					b.commands++
				}
			}
			b.unacked = b.unacked[i+1:]
		} else {
			b.unacked = append(b.unacked[:i:i], b.unacked[i+1:]...)
		}
		return nil
	}
	return errUnknownTag
}

func (b *channelModel) Nack(tag uint64, multiple, requeue bool) error {
	if multiple || !requeue {
		return errors.New("nack must be a single requeue")
	}
	b.settled[tag] = NackRequeue
	return b.Ack(tag, false)
}

func (b *channelModel) Reject(tag uint64, requeue bool) error {
	b.settled[tag] = DeadLetter
	if requeue {
		b.settled[tag] = RejectRequeue
	}
	return b.Ack(tag, false)
}

func (b *channelModel) Sync() error { return nil }

func TestAckerWritesExactlyTheSettlements(t *testing.T) {
	for seed := range uint64(200) {
		settleAtRandom(t, rand.New(rand.NewPCG(seed, 0)))
		if t.Failed() {
			t.Fatalf("failed with seed %d", seed)
		}
	}
}

func settleAtRandom(t *testing.T, random *rand.Rand) {
	b := &channelModel{settled: map[uint64]Verb{}, consumer: map[uint64]uint64{}}
	var c counters
	w := newWriter(b, &c)
	var open []uint64 // delivered and unsettled
	settled := 0
	var tag uint64
	want := map[uint64]Verb{}
	each := 1 + random.IntN(10) // number of deliveries to a consumer before the next subscribes
	for range 1 + random.IntN(30) {
		for range random.IntN(6) {
			if tag++; tag%uint64(each) == 1%uint64(each) {
				c.consumers.Add(1)
			}
			b.consumer[tag] = c.consumers.Load()
			open = append(open, tag)
			b.unacked = append(b.unacked, tag)
		}
		var batch []settlement
		for range random.IntN(len(open) + 1) {
			i := random.IntN(len(open))
			s := settlement{tag: open[i], verb: []Verb{Ack, Ack, Ack, NackRequeue, RejectRequeue, DeadLetter}[random.IntN(6)]}
			if s.verb != Ack {
				want[s.tag] = s.verb
			}
			open = append(open[:i:i], open[i+1:]...)
			batch = append(batch, s)
		}
		settled += len(batch)
		round := random.IntN(3) // a write during a pause, a write after a pause, or a write of all acks
		all := []int{math.MaxInt, math.MaxInt, 0}[round]
		if err := w.write(batch, round == 0, all); err != nil {
			t.Error(err)
			return
		}
		if round == 2 && len(w.gapped) > 0 {
			t.Errorf("unwritten acks: got %v, want none", w.gapped)
		}
		unsettled := slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(open), maps.Keys(w.gapped))))
		if !slices.Equal(unsettled, b.unacked) {
			t.Errorf("unacked on the broker: got %v, want %v", b.unacked, unsettled)
		}
		if gaps := len(w.written.end); gaps > len(unsettled) {
			t.Errorf("ranges: got %d, want at most %d, one per unacked delivery", gaps, len(unsettled))
		}
		if b.frames > settled {
			t.Errorf("frames: got %d, want at most %d, one per settlement", b.frames, settled)
		}
	}
	if !maps.Equal(want, b.settled) {
		t.Errorf("settlements other than acks: got %v, want %v", b.settled, want)
	}
	if c.commands.Load() < b.commands {
		t.Errorf("commands: got %d, want at least %d", c.commands.Load(), b.commands)
	}
	if len(open) == 0 && len(w.gapped) == 0 && len(w.written.end) != 0 {
		t.Errorf("ranges after all tags are settled: got %v, want none", w.written)
	}
}

// recorder records frames.
type recorder struct{ frames []string }

func (j *recorder) Ack(tag uint64, multiple bool) error {
	suffix := ""
	if multiple {
		suffix = " multiple"
	}
	j.frames = append(j.frames, "ack "+string(rune('0'+tag))+suffix)
	return nil
}

func (j *recorder) Nack(tag uint64, _, _ bool) error {
	j.frames = append(j.frames, "nack "+string(rune('0'+tag)))
	return nil
}

func (j *recorder) Reject(tag uint64, _ bool) error {
	j.frames = append(j.frames, "reject "+string(rune('0'+tag)))
	return nil
}

func (j *recorder) Sync() error {
	j.frames = append(j.frames, "sync")
	return nil
}

func TestContiguousAcksShareFrame(t *testing.T) {
	var j recorder
	w := newWriter(&j, &counters{})
	for _, step := range []struct {
		pauses int
		batch  []settlement
	}{
		{1, []settlement{{tag: 2}, {tag: 1}, {tag: 3}, {tag: 7}, {tag: 5}}},
		{gapPauses, []settlement{{tag: 4}}},
		{1, []settlement{{tag: 6, verb: NackRequeue}}},
		{1, []settlement{{tag: 8}}},
		{1, []settlement{{tag: 9}}},
	} {
		batch := step.batch
		for range step.pauses {
			if err := w.write(batch, false, math.MaxInt); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
	}
	want := []string{"ack 3 multiple", "ack 5 multiple", "ack 7", "nack 6", "ack 8", "ack 9"}
	if !slices.Equal(want, j.frames) {
		t.Errorf("got %q, want %q", j.frames, want)
	}
	if w.settledUpTo != 9 || len(w.written.end) != 0 {
		t.Errorf("got settledUpTo %d and ranges %v, want 9 and none", w.settledUpTo, w.written)
	}
}

type closedChannel struct{}

func (closedChannel) Ack(uint64, bool) error        { return errUnknownTag }
func (closedChannel) Nack(uint64, bool, bool) error { return errUnknownTag }
func (closedChannel) Reject(uint64, bool) error     { return errUnknownTag }
func (closedChannel) Sync() error                   { return errUnknownTag }

func TestAckNowReportsProcessedAck(t *testing.T) {
	var j recorder
	a := New(&j)
	a.Settle(1, Ack)
	done := make(chan bool)
	go func() { done <- a.AckNow(2) }()
	go a.Run(t.Context())
	if !<-done {
		t.Error("AckNow returned false, although the broker has processed the ack")
	}
	a.End()
	<-a.Done()
	if last := j.frames[len(j.frames)-1]; last != "sync" {
		t.Errorf("frames of AckNow: got %v, want sync as the last", j.frames)
	}

	a = New(closedChannel{})
	go func() { done <- a.AckNow(1) }()
	go a.Run(t.Context())
	if <-done {
		t.Error("AckNow returned true on a closed channel")
	}
}

// Flush waits for the earlier settlements, and does not count as a settlement.
func TestFlush(t *testing.T) {
	var j recorder
	a := New(&j)
	for range 3 {
		a.Delivered()
	}
	a.Settle(3, Ack)
	a.Settle(2, NackRequeue)
	done := make(chan bool)
	go func() { done <- a.Flush() }()
	go a.Run(t.Context())
	if !<-done {
		t.Error("Flush returned false, although the broker has processed the requeue")
	}
	if n := a.Unsettled(); n != 1 {
		t.Errorf("unsettled: got %d, want 1", n)
	}
	a.End()
	<-a.Done()
	if want := []string{"nack 2", "ack 3", "sync"}; !slices.Equal(j.frames, want) {
		t.Errorf("frames: got %v, want %v", j.frames, want)
	}
	if a.Flush() {
		t.Error("Flush returned true after the end")
	}
	a = New(closedChannel{})
	go func() { done <- a.Flush() }()
	go a.Run(t.Context())
	if <-done {
		t.Error("Flush returned true on a closed channel")
	}
}

func TestRunReturns(t *testing.T) {
	t.Run("after all writes", func(t *testing.T) {
		var j recorder
		a := New(&j)
		a.Settle(1, Ack)
		a.Settle(3, Ack)
		a.End()
		a.Run(t.Context())
		if !slices.Equal([]string{"ack 1", "ack 3"}, j.frames) {
			t.Errorf("frames: got %q, want ack 1 and ack 3", j.frames)
		}
	})
	t.Run("closed channel", func(t *testing.T) {
		a := New(closedChannel{})
		a.Settle(1, Ack)
		a.Run(t.Context())
		a.Settle(2, Ack) // after Run has returned, Settle does not block
	})
}

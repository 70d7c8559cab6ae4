package ledger

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// system simulates a broker and workers, one step at a time.
type system struct {
	history []terms // terms after each step
	now     terms
}

// move makes the change with the number what, if it is possible in the current state.
func (s *system) move(what int) {
	t := &s.now
	from := func(x term) bool {
		if t[x] == 0 {
			return false
		}
		t[x]--
		return true
	}
	switch what {
	case 0:
		t[published]++
		t[ready]++
	case 1:
		if from(ready) {
			t[unacked]++
		}
	case 2:
		if from(unacked) {
			t[taken]++
			t[done]++
		}
	case 3:
		if from(unacked) {
			t[taken]++
			t[waiting]++
			t[retried]++
		}
	case 4:
		if from(waiting) {
			t[ready]++
		}
	case 5:
		if from(unacked) {
			t[taken]++
			t[inParking]++
			t[gaveUp]++
		}
	case 6:
		if from(inParking) {
			t[failing]++
		}
	case 7:
		t[published]++ // scheduled
		t[waiting]++
	case 8:
		if from(unacked) {
			t[taken]++
			t[elsewhere]++
			t[retried]++
		}
	case 9:
		if from(elsewhere) {
			t[ready]++
		}
	case foreign:
		if from(unacked) {
			t[taken]++
		}
	}
	s.history = append(s.history, s.now)
}

func (s *system) rest(moments int) {
	for range moments {
		s.history = append(s.history, s.now)
	}
}

// foreign is the move of a consumer without a book, which acknowledges a message.
const foreign = 12

const everyMoments = 10

// figures contains the groups of terms that a sample reads at the same time.
var figures = [][]term{{published}, {taken}, {ready, unacked}, {waiting}, {elsewhere}, {inParking}, {failing}, {done}, {retried}, {gaveUp}}

// elsewhere is a second wait queue.
const elsewhere = refused

func moment(n int) time.Time { return time.Unix(int64(n), 0) }

// samples takes a sample every ten steps. Each term is at most nine steps old. The terms of one group in figures have the
// same age.
func (s *system) samples(t *rapid.T) (all []sample) {
	age := rapid.OneOf(rapid.IntRange(0, everyMoments-1), rapid.SampledFrom([]int{0, everyMoments - 1}))
	for at := everyMoments; at < len(s.history); at += everyMoments {
		x := sample{at: moment(at), until: moment(at), times: 1}
		for _, figure := range figures {
			then := s.history[at-age.Draw(t, "age")]
			for _, i := range figure {
				x.terms[i] = then[i]
			}
		}
		x.terms[waiting] += x.terms[elsewhere]
		x.terms[elsewhere] = 0
		if n := len(all); n > 0 && all[n-1].terms == x.terms {
			all[n-1].until = x.at
			all[n-1].times++
		} else {
			all = append(all, x)
		}
	}
	return all
}

// Figures that were read at different times do not cause a discrepancy, even in a busy queue. After the activity in the
// queue has stopped, the ledger finds the exact number of lost messages, and a window that contains the time of the loss.
func TestSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &system{}
		s.rest(4 * everyMoments)
		works := func(label string) {
			for _, what := range rapid.SliceOfN(rapid.IntRange(0, 11), 0, 100).Draw(t, label) {
				s.move(what)
			}
		}
		works("before")
		lost := int64(0)
		from := len(s.history)
		if rapid.Bool().Draw(t, "lossy") {
			lost = rapid.Int64Range(0, s.now[ready]).Draw(t, "lost")
			s.now[ready] -= lost
			if lost == 0 {
				s.now[ready]++ // a duplicate
				lost = -1
			}
			s.history = append(s.history, s.now)
		}
		works("after")
		s.rest(5 * everyMoments)

		all := s.samples(t)
		found := steps(opening{terms: all[0].terms}, all)
		if lost == 0 {
			if len(found) != 0 {
				t.Fatalf("got %+v, want no steps", found)
			}
			return
		}
		if len(found) != 1 || found[0].n != lost {
			t.Fatalf("got steps %+v, want one of %d messages", found, lost)
		}
		before, after := all[found[0].before].at, all[found[0].after].until
		if before.After(moment(from)) || after.Before(moment(from)) {
			t.Fatalf("window must include the loss at %d: got %d to %d", from, before.Unix(), after.Unix())
		}
	})
}

// Acknowledgements of consumers without a book are never a discrepancy, not even while the queue is busy. A loss in addition is one
// as soon as the queue is idle.
func TestForeignAcknowledgementsAreUnknown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &system{}
		s.rest(4 * everyMoments)
		// Many messages go to consumers without a book; the queue is sometimes idle in between.
		moves := rapid.OneOf(rapid.SampledFrom([]int{0, 1, foreign}), rapid.IntRange(0, foreign))
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			for _, what := range rapid.SliceOfN(moves, 0, 150).Draw(t, "moves") {
				s.move(what)
			}
			s.rest(rapid.IntRange(0, 4*everyMoments).Draw(t, "rest"))
		}
		lost := rapid.Int64Range(0, s.now[ready]).Draw(t, "lost")
		moved := len(s.history)
		s.now[ready] -= lost
		s.rest(5 * everyMoments)
		unreported := s.now.unreported(&terms{})

		all := s.samples(t)
		const queue = "orders"
		a := account{name: queue, work: []string{queue}, opened: moment(1), opening: opening{terms: all[0].terms}}
		l := &Ledger{cfg: Config{Every: time.Hour}}
		for n := range all {
			got := l.line(all[n].until, a, all[:n+1], []page{{queue: queue}}, 0)
			if all[n].until.Before(moment(moved)) && got.State != Balanced && got.State != Unknown {
				t.Fatalf("sample %d: got %+v, want no discrepancy", n, got)
			}
			if n < len(all)-1 {
				continue
			}
			want := Balanced
			switch {
			case lost > 0:
				want = Differs
			case unreported > 0:
				want = Unknown
			}
			if got.State != want {
				t.Fatalf("idle, %d lost and %d unreported: got %+v, want %s", lost, unreported, got, want)
			}
		}
	})
}

// Whenever an account is opened, and however busy its queue is, an exact balance includes no acknowledgement of a consumer without a
// book. Without these consumers, the ledger reports none, and the account becomes exact.
func TestExactBalanceIncludesNoForeignAcknowledgements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &system{}
		var foreigners []int // moments of the acknowledgements
		moves := rapid.SampledFrom([]*rapid.Generator[int]{rapid.IntRange(0, foreign-1), rapid.IntRange(0, foreign), rapid.SampledFrom([]int{0, 1, 2, foreign})}).Draw(t, "kind")
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			for _, what := range rapid.SliceOfN(moves, 0, 150).Draw(t, "moves") {
				before := s.now
				if s.move(what); what == foreign && s.now != before {
					foreigners = append(foreigners, len(s.history)-1)
				}
			}
			s.rest(rapid.IntRange(0, 4*everyMoments).Draw(t, "rest"))
		}
		s.rest(6 * everyMoments)

		const queue = "orders"
		a := account{name: queue, work: []string{queue}}
		l := &Ledger{cfg: Config{Every: time.Hour}}
		all := s.samples(t)
		for n := range all {
			known := all[:n+1]
			least := int64(0)
			if a.slack > 0 {
				least = silent(known)
			}
			if least > int64(len(foreigners)) {
				t.Fatalf("sample %d: got %d unreported acknowledgements, want at most %d", n, least, len(foreigners))
			}
			if again := a; again.open(known[max(0, n-2):]) && least == 0 {
				a = again
			}
			if a.opened.IsZero() {
				continue
			}
			from := slices.IndexFunc(known, func(x sample) bool { return !x.at.Before(a.opened) })
			got := l.line(known[n].until, a, known[from:], []page{{queue: queue, ended: true}}, least)
			since := 0
			for _, at := range foreigners {
				if moment(at).After(a.opened) && moment(at+everyMoments).Before(got.At) { // the figures are up to everyMoments old
					since++
				}
			}
			if got.State == Balanced && got.Slack == 0 && since > 0 {
				t.Fatalf("sample %d, %d unreported acknowledgements: got %+v, want no exact balance", n, since, got)
			}
			if got.State == Differs || len(foreigners) == 0 && got.State == Unknown {
				t.Fatalf("sample %d, %d unreported acknowledgements: got %+v, want no discrepancy", n, since, got)
			}
			if n == len(all)-1 && len(foreigners) == 0 && (got.State != Balanced || got.Slack != 0) {
				t.Fatalf("idle, without unreported acknowledgements: got %+v, want an exact balance", got)
			}
		}
	})
}

// In a queue with permanent activity, the ledger finds a loss when it exceeds the number of messages that are published plus
// the number of messages that are processed between two samples.
func TestStepsOfBusyQueue(t *testing.T) {
	const each = 10 // published and done between two samples
	for name, losses := range map[string][]int64{
		"at once":    {0, 0, 0, 2*each + 1, 0, 0, 0, 0},
		"one by one": slices.Repeat([]int64{1}, 2*each+5),
	} {
		t.Run(name, func(t *testing.T) {
			var all []sample
			var now terms
			for n, lost := range losses {
				now[published] += each + lost
				now[done] += each
				all = append(all, sample{at: moment(n), until: moment(n), times: 1, terms: now})
			}
			if found := steps(opening{terms: all[0].terms}, all); len(found) != 1 || found[0].n < 1 {
				t.Errorf("got steps %+v, want 1", found)
			}
		})
	}
}

// Messages in flight at the last sample are not a discrepancy.
func TestStepsIgnoreMovingLastSample(t *testing.T) {
	still := sample{at: moment(0), until: moment(20), times: 3}
	torn := sample{at: moment(30), until: moment(40), times: 2, terms: terms{published: 1}}
	if found := steps(opening{}, []sample{still, torn}); len(found) != 0 {
		t.Errorf("got steps %+v, want none", found)
	}
	torn.until, torn.times = moment(50), 3
	if found := steps(opening{}, []sample{still, torn}); len(found) != 1 {
		t.Errorf("after three equal samples: got steps %+v, want 1", found)
	}
}

// A single moving message counts once for each place where the move is visible, regardless of the number of attempts.
func TestMotionOfOneMessage(t *testing.T) {
	before := terms{published: 5, done: 5}
	at, after := before, before
	at[published], at[retried], at[waiting] = 6, 1, 1
	after[published], after[retried], after[gaveUp], after[failing] = 6, 2, 1, 1
	const places = 4 // it was published, waited, was parked, and was archived
	if n := motion(&before, &at, &after); n != places {
		t.Errorf("motion: got %d, want %d", n, places)
	}
}

// An account that was opened during activity is opened again, exactly, when the activity ends. A correction of the first opening
// would hide a loss within its slack.
func TestInexactOpeningIsReplaced(t *testing.T) {
	moving := func(n int, in, out int64) sample {
		return sample{at: moment(n), until: moment(n), times: 1, terms: terms{published: in, done: out}}
	}
	samples := []sample{moving(0, 0, 0), moving(1, 10, 7), moving(2, 20, 19)} // the second sample: 3 messages are in flight
	var a account
	if !a.open(samples) || a.slack == 0 || a.opened != moment(1) {
		t.Fatalf("opening during activity: got time %s and slack %d, want %s and more than 0", a.opened, a.slack, moment(1))
	}
	if a.open(samples) {
		t.Error("open succeeded twice")
	}
	almost := append(samples[:3:3], sample{at: moment(3), until: moment(5), times: 3, terms: terms{published: 40, done: 40}})
	var b account
	if b.open(almost[1:]) {
		t.Errorf("opening with three equal samples: got time %s, want none, not even an older one", b.opened)
	}
	lossy := a
	for _, c := range []struct {
		missing int64
		opened  time.Time
	}{{0, moment(3)}, {a.slack, moment(3)}, {a.slack + 4, moment(1)}} {
		a := lossy
		still := sample{at: moment(3), until: moment(6), times: 4, terms: terms{published: 40 + c.missing, done: 37}}
		if a.open(append(samples[1:3:3], still)); a.opened != c.opened || (a.slack == 0) != (c.opened == moment(3)) {
			t.Errorf("idle, with %d missing messages: got time %s and slack %d, want time %s", c.missing, a.opened, a.slack, c.opened)
		}
		if a.slack == 0 && a.terms != still.terms {
			t.Errorf("idle, with %d missing messages: got opening %v, want %v", c.missing, a.terms, still.terms)
		}
	}
}

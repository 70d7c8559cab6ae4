package archive

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Act is a kind of action or fault in a life. Draw draws the arguments n and last of Do.
type Act struct {
	Fault  bool
	Weight int
	Do     func(s *System, n int, last time.Duration, random *rand.Rand)
	Draw   func(random *rand.Rand) (n int, last time.Duration) // nil: no arguments
}

func some(most int) func(*rand.Rand) (int, time.Duration) {
	return func(r *rand.Rand) (int, time.Duration) { return 1 + r.IntN(most), 0 }
}

func lasting(most time.Duration) func(*rand.Rand) (int, time.Duration) {
	return func(r *rand.Rand) (int, time.Duration) { return r.IntN(1000), time.Duration(1 + r.Int64N(int64(most))) }
}

// rarely returns a function that draws a duration. The maximum duration is the argument rare in one of eight cases, and
// the argument most in the others.
func rarely(most, rare time.Duration) func(*rand.Rand) (int, time.Duration) {
	return func(r *rand.Rand) (int, time.Duration) {
		if r.IntN(8) == 0 {
			return lasting(rare)(r)
		}
		return lasting(most)(r)
	}
}

// waiting draws the time before a confirmation: zero in half of the cases, otherwise up to three minutes.
func waiting(r *rand.Rand) (int, time.Duration) {
	if r.IntN(2) == 0 {
		return 0, 0
	}
	return 0, time.Duration(r.Int64N(int64(3 * time.Minute)))
}

func person(do func(s *System, last time.Duration, random *rand.Rand)) func(*System, int, time.Duration, *rand.Rand) {
	return func(s *System, _ int, last time.Duration, random *rand.Rand) { do(s, last, random) }
}

func (s *System) either(random *rand.Rand) *Process {
	all := s.processes()
	if len(all) == 0 {
		return nil
	}
	return all[random.IntN(len(all))]
}

// Acts contains all acts by name.
var Acts = map[string]Act{
	"archive-publish": {Weight: 8, Draw: some(40), Do: func(s *System, n int, _ time.Duration, random *rand.Rand) {
		s.Publish(context.Background(), n, random)
	}},
	"archive-publish-many": {Weight: 1, Draw: some(300), Do: func(s *System, n int, _ time.Duration, random *rand.Rand) {
		s.Publish(context.Background(), n, random)
	}},
	"archive-down": {Weight: 4, Draw: lasting(20 * time.Minute), Do: func(s *System, n int, last time.Duration, _ *rand.Rand) {
		names := slices.Sorted(maps.Keys(classes))
		class := names[n%len(names)]
		s.SetDown(class, true)
		s.later(last, func() { s.SetDown(class, false) })
	}},
	"archive-group-discard":   {Weight: 2, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnGroup("discard", r, w) })},
	"archive-group-replay":    {Weight: 3, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnGroup("replay", r, w) })},
	"archive-group-restore":   {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnGroup("restore", r, w) })},
	"archive-search-discard":  {Weight: 2, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnSearch("discard", r, w) })},
	"archive-search-replay":   {Weight: 3, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnSearch("replay", r, w) })},
	"archive-search-restore":  {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnSearch("restore", r, w) })},
	"archive-pick-discard":    {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnPicked("discard", r, w) })},
	"archive-pick-replay":     {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnPicked("replay", r, w) })},
	"archive-pick-restore":    {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnPicked("restore", r, w) })},
	"archive-message-discard": {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnMessage("discard", r, w) })},
	"archive-message-replay":  {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnMessage("replay", r, w) })},
	"archive-message-restore": {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.OnMessage("restore", r, w) })},
	"archive-edit":            {Weight: 2, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.Edit(r, w) })},
	"archive-cancel":          {Weight: 3, Draw: waiting, Do: person(func(s *System, _ time.Duration, r *rand.Rand) { s.Cancel(r) })},
	"archive-api-discard":     {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.ByAPI("discard", r, w) })},
	"archive-api-replay":      {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.ByAPI("replay", r, w) })},
	"archive-api-restore":     {Weight: 1, Draw: waiting, Do: person(func(s *System, w time.Duration, r *rand.Rand) { s.ByAPI("restore", r, w) })},
	"archive-go-discard":      {Weight: 1, Draw: waiting, Do: person(func(s *System, _ time.Duration, r *rand.Rand) { s.ByGo("discard", r) })},
	"archive-go-replay":       {Weight: 1, Draw: waiting, Do: person(func(s *System, _ time.Duration, r *rand.Rand) { s.ByGo("replay", r) })},
	"archive-go-restore":      {Weight: 1, Draw: waiting, Do: person(func(s *System, _ time.Duration, r *rand.Rand) { s.ByGo("restore", r) })},

	"archive-purge":  {Weight: 2, Do: func(s *System, _ int, _ time.Duration, _ *rand.Rand) { s.Purge() }},
	"archive-export": {Weight: 1, Do: func(s *System, _ int, _ time.Duration, _ *rand.Rand) { s.Export() }},

	"archive-kill": {Fault: true, Weight: 2, Draw: lasting(2 * time.Minute), Do: func(s *System, _ int, last time.Duration, random *rand.Rand) {
		s.Kill(s.either(random), last)
	}},
	"archive-kill-at": {Fault: true, Weight: 3, Draw: lasting(2 * time.Minute), Do: func(s *System, n int, last time.Duration, random *rand.Rand) {
		s.KillAt(s.either(random), 1+n%200, random.IntN(2) == 0, last)
	}},
	"archive-stop": {Weight: 2, Draw: lasting(2 * time.Minute), Do: func(s *System, _ int, last time.Duration, random *rand.Rand) {
		s.Stop(s.either(random), last)
	}},
	"archive-cut": {Fault: true, Weight: 2, Do: func(s *System, _ int, _ time.Duration, random *rand.Rand) { s.Cut(s.either(random)) }},
	"archive-database-hangs": {Fault: true, Weight: 1, Draw: rarely(8*time.Minute, 5*time.Hour), Do: func(s *System, n int, last time.Duration, _ *rand.Rand) {
		s.Break("hangs", Fault{Hangs: true, Writes: n%3 == 0}, last)
	}},
	"archive-commit-hangs": {Fault: true, Weight: 1, Draw: lasting(10 * time.Minute), Do: func(s *System, n int, last time.Duration, _ *rand.Rand) {
		s.Break("hangs after each commit", Fault{Hangs: true, Writes: true, After: true}, last)
	}},
	"archive-database-fails": {Fault: true, Weight: 2, Draw: rarely(8*time.Minute, 2*time.Hour), Do: func(s *System, n int, last time.Duration, _ *rand.Rand) {
		code := []int{CodeReadOnly, CodeIOError, CodeFull}[n%3]
		s.Break(fmt.Sprintf("fails with %d", code), Fault{Code: code, Writes: code != CodeIOError}, last)
	}},
	"archive-file-moved": {Fault: true, Weight: 1, Draw: lasting(6 * time.Minute), Do: func(s *System, _ int, last time.Duration, _ *rand.Rand) { s.MoveAway(last) }},
	"archive-backup":     {Weight: 1, Do: func(s *System, _ int, _ time.Duration, _ *rand.Rand) { s.Backup() }},
	"archive-file-lost": {Fault: true, Weight: 1, Draw: lasting(6 * time.Minute), Do: func(s *System, n int, last time.Duration, _ *rand.Rand) {
		s.Lose(n%2 == 0, last)
	}},
}

// Do performs an act. It adds step, the line of the script, to the events.
func (s *System) Do(step, act string, n int, last time.Duration, random *rand.Rand) {
	s.note("step %s", step)
	Acts[act].Do(s, n, last, random)
}

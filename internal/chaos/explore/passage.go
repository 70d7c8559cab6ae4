package explore

import (
	"fmt"
	"slices"

	"github.com/reprisemq/reprise/internal/testkit"
)

// A Passage combines a Life with a Way, and contains the results of its exploration.
type Passage struct {
	Way    Way
	Life   Life
	Script []testkit.Crossing

	// Outcomes has a row for each frame of Script. The row contains the outcome for each of the Breakages, if it occurs
	// immediately before the frame.
	Outcomes [][]Outcome
}

// Passages returns all passages. They are not yet explored. Done occurs only once, because it is the same in all ways.
func Passages() (all []*Passage) {
	for _, l := range []Life{Retry, Park} {
		for _, w := range []Way{Requeue, PublishThenAck, AckThenPublish, DeadLetter} {
			all = append(all, &Passage{Way: w, Life: l})
		}
	}
	return append(all, &Passage{Way: PublishThenAck, Life: Done})
}

// String returns the names of the life and the way.
func (p *Passage) String() string { return p.Life.Name + ", " + p.Way.Name }

// Has reports whether any breakage leads to the outcome o.
func (p *Passage) Has(o Outcome) bool {
	return slices.ContainsFunc(p.Outcomes, func(row []Outcome) bool { return slices.Contains(row, o) })
}

func (p *Passage) record(x *explorer) error {
	script, err := x.record()
	p.follow(script)
	return err
}

func (p *Passage) follow(script []testkit.Crossing) {
	p.Script, p.Outcomes = script, make([][]Outcome, len(script))
	for at := range script {
		p.Outcomes[at] = make([]Outcome, len(Breakages))
	}
}

// survey causes the nth breakage at each moment and records the outcomes.
func (p *Passage) survey(x *explorer, n int) error {
	for at := range p.Script {
		o, err := x.explore(p.Script, at, Breakages[n])
		if err != nil {
			return fmt.Errorf("the %s breaks before %s: %w", Breakages[n].Name, p.Script[at], err)
		}
		p.Outcomes[at][n] = o
	}
	return nil
}

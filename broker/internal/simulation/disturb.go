package simulation

import (
	"math/rand/v2"
	"time"
)

// owners contains functions that return, for a shape, the owners of connections that network faults can affect, such
// as workers and publishers.
var owners []func(Shape) []string

// RegisterOwners adds a function that returns the owners of connections that network faults can affect.
func RegisterOwners(f func(Shape) []string) { owners = append(owners, f) }

func drawOwner(random *rand.Rand, shape Shape) string {
	var all []string
	for _, f := range owners {
		all = append(all, f(shape)...)
	}
	return oneOf(random, all...)
}

// onLinks registers a fault of an owner's connections. The field N of the step selects the connection.
func onLinks(name string, weight int, draw func(random *rand.Rand, s *Step), do func(l *Life, s Step, k *Link)) {
	RegisterAct(Act{
		Name: name, Weight: weight, Fault: true,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			s := Step{On: drawOwner(random, shape), N: random.IntN(2)}
			draw(random, &s)
			return []Step{s}
		},
		Do: func(l *Life, s Step) {
			links := l.Network.Links(s.On)
			if len(links) == 0 {
				return
			}
			l.Count(name)
			do(l, s, links[s.N%len(links)])
		},
	})
}

func init() {
	onLinks("cut", 8, func(*rand.Rand, *Step) {}, func(_ *Life, _ Step, k *Link) { k.Cut("cut") })
	onLinks("cut-later", 8, func(*rand.Rand, *Step) {}, func(_ *Life, s Step, k *Link) {
		random := s.Random()
		k.CutAfter(random.IntN(4000), random.IntN(2) == 0)
	})
	onLinks("half-dead", 5, func(*rand.Rand, *Step) {}, func(_ *Life, s Step, k *Link) {
		switch s.Random().IntN(3) {
		case 0:
			k.Swallow(true, false)
		case 1:
			k.Swallow(false, true)
		case 2:
			k.Swallow(true, true)
		}
	})
	onLinks("stall", 5, func(random *rand.Rand, s *Step) { s.For = between(random, time.Second, 5*time.Minute) }, func(_ *Life, s Step, k *Link) {
		direction := s.Random().IntN(3)
		k.Stall(time.Now().Add(s.For), direction != 0, direction != 1)
	})
	RegisterAct(Act{
		Name: "refuse", Weight: 3, Fault: true,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			return []Step{{On: drawOwner(random, shape), For: between(random, time.Second, time.Hour)}}
		},
		Do: func(l *Life, s Step) {
			d := l.Disturb(s.On, "refused")
			time.AfterFunc(s.For, d.End)
			l.Network.Refuse(s.On, s.For)
			for _, k := range l.Network.Links(s.On) {
				k.Cut("cut")
			}
			l.Count("refuse")
		},
	})
}

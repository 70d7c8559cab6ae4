package simulation

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/broker/internal/simulation/archive"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// The life of every archiveEvery-th seed has an archive.
const archiveEvery = 4

// drawArchive adds an archive with its processes and operators to a shape, and replaces the works with a single work.
// The horizon of a life with an archive is short, because idle processes poll their databases continually.
func drawArchive(random *rand.Rand, s *Shape) {
	s.Horizon = between(random, 8*time.Minute, 40*time.Minute)
	w := drawWork(random, "buckets")
	w.Attempts = min(w.Attempts, 2)
	w.Delays = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second}
	s.Works = []Work{w}
	s.Archive = &archive.Options{
		Second: random.IntN(3) == 0, Foreign: random.IntN(2) == 0, Routed: random.IntN(2) == 0, Ledger: random.IntN(2) == 0, Attempts: 1 + random.IntN(3),
	}
	if random.IntN(3) == 0 {
		s.Archive.Retention = between(random, time.Minute, 20*time.Minute)
	}
	if random.IntN(8) > 0 {
		s.Archive.Lease, s.Archive.Poll = time.Minute, 15*time.Second
	}
}

// archiveActor is the Actor that runs the archive of a life. Package archive checks the promises of the archive.
type archiveActor struct {
	system *archive.System
}

func init() {
	RegisterActor(func(l *Life) []Actor {
		if l.Script.Shape.Archive == nil {
			return nil
		}
		return []Actor{&archiveActor{}}
	})
	RegisterOwners(func(s Shape) []string {
		if s.Archive == nil {
			return nil
		}
		return []string{archive.Up, archive.Console}
	})
	for name, a := range archive.Acts {
		RegisterAct(Act{
			Name: name, Fault: a.Fault, Weight: a.Weight,
			Fits: func(s Shape) bool { return s.Archive != nil },
			Draw: func(random *rand.Rand, s Shape) []Step {
				var step Step
				if a.Draw != nil {
					step.N, step.For = a.Draw(random)
				}
				step.For = step.For.Truncate(time.Millisecond)
				return []Step{step}
			},
			Do: func(l *Life, s Step) {
				for _, actor := range l.actors {
					if x, ok := actor.(*archiveActor); ok && x.system != nil {
						l.Count(name)
						l.Go(func() { x.system.Do(s.String(), name, s.N, s.For, s.Random()) })
					}
				}
			},
		})
	}
	RegisterCheck(Check{
		Promise: "the archive keeps its promises (see package archive)", In: "docs/failed-messages.md",
		Check: func(l *Life, _ string) {
			for _, actor := range l.actors {
				if x, ok := actor.(*archiveActor); ok && x.system != nil {
					x.system.Check()
				}
			}
		},
	})
}

// Begin implements Actor.
func (a *archiveActor) Begin(l *Life) {
	management := archive.Served(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b := l.Server.Broker(); b != nil {
			b.Management().ServeHTTP(w, r)
			return
		}
		http.Error(w, "the broker is down", http.StatusBadGateway)
	}))
	const address, user = "http://management", "guest"
	system := archive.NewSystem(archive.Environment{
		URL:    url,
		Dial:   func(process string) archive.Dial { return l.Network.Dialer(process) },
		Broker: &ledger.Management{URL: address, User: user, Password: user, Client: management},
		Bindings: func(ctx context.Context) (topology.Topology, error) {
			return mgmtapi.API{URL: address, User: user, Password: user, Client: management}.Topology(ctx)
		},
		Broken: func(promise, detail string) { l.Broken(promise, "%s", detail) },
		Count:  l.Count,
		Disturbances: func(from, to time.Time) (n int) {
			for _, who := range []string{archive.Up, archive.Console, brokerName} {
				for _, d := range l.Disturbed(who, from, to) {
					n++
					if end := d.To; !end.IsZero() { // a message without a confirm within 30 s is republished
						n += int(end.Sub(d.From) / (30 * time.Second))
					} else {
						n += int(time.Since(d.From) / (30 * time.Second))
					}
				}
			}
			return n
		},
		Forgot: l.forgotAck,
	}, *l.Script.Shape.Archive, l.TempDir())
	if err := system.Begin(context.Background()); err != nil {
		l.Broken("simulation", "%v", err)
		return
	}
	a.system = system
}

// forgotAck reports whether the broker may have lost the acknowledgement of a message that was archived twice, at the
// times stored and again. Between these times, the broker must have crashed within grace after the first time, or have
// crashed or stopped after a disk fault.
func (l *Life) forgotAck(stored, again time.Time) bool {
	for _, d := range l.Disturbed(brokerName, stored, again, "crash", "stop") {
		last := d.Why == "crash" && d.From.Sub(stored) <= l.grace()
		if !d.From.Before(stored) && (last || len(l.Disturbed(brokerName, stored, d.From, "disk")) > 0) {
			return true
		}
	}
	return false
}

// Heal implements Actor.
func (a *archiveActor) Heal(*Life) {
	if a.system != nil {
		a.system.Heal()
	}
}

// Idle implements Actor.
func (a *archiveActor) Idle(*Life) string {
	if a.system == nil {
		return ""
	}
	return a.system.Busy()
}

// End implements Actor.
func (a *archiveActor) End(*Life) {
	if a.system != nil {
		a.system.End()
	}
}

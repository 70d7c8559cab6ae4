package simulation

import (
	"math/rand/v2"
	"time"
)

// Faults during a burst of messages find more defects than faults at random times.
func init() {
	RegisterAct(Act{
		Name: "moment", Weight: 8,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			w := oneOf(random, shape.Works...)
			at := upTo(random, shape.Horizon)
			burst := Step{At: at, Act: oneOf(random, "publish-burst", "publish-batch"), On: w.Name, N: 50 + random.IntN(250), For: upTo(random, 300*time.Millisecond)}
			strike := Step{At: at + upTo(random, 400*time.Millisecond), For: between(random, time.Millisecond, time.Minute)}
			switch n := random.IntN(8); {
			case n < 3 && shape.Disk:
				strike.Act = "crash-broker"
			case n < 5 && shape.Disk:
				strike.Act, strike.N = "stop-broker", oneOf(random, 0, 5, 25, 5000)
			case n == 5:
				strike.Act, strike.On = "crash-worker", workerName(w, random.IntN(w.Workers))
			case n == 6:
				strike.Act, strike.On, strike.N = "stop-worker", workerName(w, random.IntN(w.Workers)), oneOf(random, 0, 100, 5000)
			default:
				strike.Act, strike.On, strike.N = oneOf(random, "cut", "cut-later", "half-dead"), oneOf(random, publisherName, workerName(w, 0)), random.IntN(2)
			}
			return []Step{burst, strike, {At: at, Act: "moment"}}
		},
		Do: func(l *Life, _ Step) { l.Count("moment") },
	})
	RegisterAct(Act{
		Name: "crash-in-compaction", Weight: 4, Fault: true,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			if shape.Compaction == 0 {
				return nil
			}
			at := upTo(random, shape.Horizon)
			steps := []Step{{At: at, For: between(random, time.Millisecond, time.Minute)}}
			for range 6 {
				steps = append(steps, Step{
					At: at + upTo(random, 2*shape.Compaction), Act: "publish-burst", On: oneOf(random, shape.Works...).Name, N: 100, For: time.Second,
				})
			}
			return steps
		},
		Do: func(l *Life, s Step) { l.Go(func() { l.Server.crashInCompaction(s) }) },
	})
}

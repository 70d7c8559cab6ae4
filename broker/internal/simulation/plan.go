package simulation

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Plan is the planned behavior of the handlers of a message. It depends only on the ID of the message.
type Plan struct {
	Fails int  // number of failed attempts before the last one
	Parks bool // the last attempt parks the message; otherwise it succeeds
	Quick bool // attempts take no time, and a failure is always an error
	Brief bool // attempts take at most ten seconds
	Long  bool // a quarter of the attempts take up to a minute
}

// never is a number of failed attempts that no policy permits.
const never = 1000

// source returns the random source of a message or of one of its attempts.
func source(id string, attempt int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(attempt)))
}

func planOf(id string) (p Plan) {
	random := source(id, 0)
	switch n := random.IntN(20); {
	case n < 10:
	case n < 16:
		p.Fails = 1 + random.IntN(4)
	case n < 18:
		p.Fails = never
	default:
		p.Fails, p.Parks = random.IntN(3), true
	}
	return p
}

// done reports whether the message succeeds within a number of attempts.
func (p Plan) done(attempts int) bool { return !p.Parks && p.Fails < attempts }

// manner is how an attempt ends.
type manner int

const (
	succeeds manner = iota
	parks
	fails
	panics
	exits // runtime.Goexit
	asks  // RetryAfter
	pauses
	manners
)

// attempt is the planned behavior of one run of a handler.
type attempt struct {
	manner manner
	took   time.Duration
	asked  time.Duration // only for asks and pauses
}

func (p Plan) attempt(id string, n int) (a attempt) {
	if p.Quick {
		if n <= p.Fails {
			a.manner = fails
		}
		return a
	}
	random := source(id, n)
	switch random.IntN(30) {
	case 0:
		a.took = upTo(random, 10*time.Minute)
	case 1, 2, 3:
		a.took = upTo(random, 10*time.Second)
	case 4, 5, 6, 7, 8:
		a.took = upTo(random, 300*time.Millisecond)
	}
	if p.Long && random.IntN(4) == 0 {
		a.took = upTo(random, time.Minute)
	}
	if p.Brief {
		a.took = min(a.took, 10*time.Second)
	}
	if n > p.Fails {
		if p.Parks {
			a.manner = parks
		}
		return a
	}
	switch random.IntN(20) {
	default:
		a.manner = fails
	case 0, 1:
		a.manner = panics
	case 2:
		a.manner = exits
	case 3, 4, 5:
		a.manner, a.asked = asks, upTo(random, 10*time.Minute)
	case 6:
		a.manner, a.asked = pauses, upTo(random, time.Minute)
	}
	return a
}

// errPlanned is the error of a planned failure.
var errPlanned = errors.New("planned to fail")

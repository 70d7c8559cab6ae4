package simulation

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Plan is what happens to a message in its handlers. It follows from the message's id alone.
type Plan struct {
	Fails int  // attempts that fail; the next one ends it
	Parks bool // the attempt that ends it parks the message, rather than succeed
	Quick bool // attempts take no time and fail by an error
}

// never is a number of failures that no policy allows.
const never = 1000

// source returns what is random about a message, or one of its attempts.
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

// done reports whether a policy of so many attempts lets the message succeed.
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

// attempt is what a handler does.
type attempt struct {
	manner manner
	took   time.Duration
	asked  time.Duration // of asks and pauses
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

// errPlanned is the error of an attempt that is to fail.
var errPlanned = errors.New("planned to fail")

package limit

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Times of the protocol. A share ends lease after its member sent the request, on the member's clock, or with the connection.
// The leader gives it to others expiry after it received the request, on its own clock. A new leader only confirms shares for
// expiry, unless there was no other consumer when it subscribed.
const (
	beat   = 2 * time.Second
	lease  = 3 * beat
	expiry = lease + fence

	// fence is the maximum age of the leader's own request for which it still answers. A process that was stopped, or that
	// the broker has replaced, does not receive its own requests.
	fence = beat + beat/2
)

// request asks for a share. All times and shares belong to one member.
type request struct {
	Member  string        `json:"member"`
	Session string        `json:"session"`          // names the queue for the answers
	Sent    time.Duration `json:"sent"`             // since the start of the member
	Demand  float64       `json:"demand"`           // the share that the member could use
	Held    float64       `json:"held"`             // the share that the member uses until it receives an answer
	Leaves  bool          `json:"leaves,omitempty"` // the member needs no share any more
}

// answer is the share of a member, which replaces its earlier share. A member ignores the answer unless it belongs to its latest
// request, so a share that the leader has taken away does not return.
type answer struct {
	Sent  time.Duration `json:"sent"`
	Share float64       `json:"share"`
}

// leader divides the limit among the members, while its process is the active consumer. Its methods are not safe for concurrent
// use.
type leader struct {
	member string
	limit  float64
	whole  bool // shares are integers

	own    time.Time // when the latest request of the own process was sent that has come back; zero: none
	since  time.Time // when another leader may have allotted shares
	claims map[string]*claim
}

// newLeader returns the leader of a new consumer, which is alone if the queue had no other consumer.
func newLeader(cfg Config, member string, alone bool, now time.Time) *leader {
	l := &leader{member: member, limit: cfg.total(), whole: cfg.Concurrency > 0, claims: map[string]*claim{}}
	if !alone {
		l.since = now
	}
	return l
}

// leads reports whether the process was the active consumer a moment ago.
func (l *leader) leads(now time.Time) bool { return !l.own.IsZero() && now.Sub(l.own) <= fence }

// beat is called before each request, except the first one of a consumer, and also while the broker blocks requests. Then the
// members keep their shares.
func (l *leader) beat(now time.Time) {
	if !l.leads(now) {
		l.since = now
		clear(l.claims)
	}
}

// claim is what a member can use.
type claim struct {
	request
	received time.Time
	share    float64 // of the latest answer
	most     float64 // of all answers to the latest request
}

// used returns the share that the member may use at present: it may not have received the latest answers.
func (c *claim) used() float64 { return max(c.Held, c.most) }

func (c *claim) set(share float64) { c.share, c.most = share, max(c.most, share) }

// reply is an answer for a member.
type reply struct {
	member, session string
	answer
}

// answer returns the share of a member, and new answers to the latest requests of others whose shares change much. The sum of the
// shares that members may use never exceeds the limit, so a member receives more only after others have confirmed that they use
// less. answer returns nothing if another process may be the leader.
func (l *leader) answer(now time.Time, r request) (all []reply) {
	if !l.leads(now) {
		return nil
	}
	maps.DeleteFunc(l.claims, func(_ string, c *claim) bool { return now.Sub(c.received) >= expiry })
	if r.Leaves && r.Held == 0 {
		delete(l.claims, r.Member)
	} else {
		l.claims[r.Member] = &claim{request: r, received: now}
	}
	if now.Sub(l.since) < expiry { // the shares of others are not known yet
		if c := l.claims[r.Member]; c != nil {
			c.set(min(r.Held, l.targets(now)[r.Member]))
			all = append(all, reply{r.Member, r.Session, answer{r.Sent, c.share}})
		}
		return all
	}
	free := l.limit
	for _, c := range l.claims {
		free -= c.used()
	}
	targets := l.targets(now)
	ids := slices.SortedFunc(maps.Keys(l.claims), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.claims[a].share, l.claims[b].share), cmp.Compare(a, b))
	})
	for _, id := range ids {
		c := l.claims[id]
		share := min(targets[id], c.used()+max(0, free))
		if id != r.Member && !l.differs(c.share, share) {
			continue
		}
		before := c.used()
		c.set(share)
		free -= c.used() - before
		all = append(all, reply{id, c.Session, answer{c.Sent, share}})
	}
	return all
}

// differs reports whether a member should know its new share before its next request.
func (l *leader) differs(old, share float64) bool {
	if l.whole {
		return old != share
	}
	return share < old*3/4 || share > old*4/3
}

// turn is the time for which a member keeps a permit if there are more members than permits.
const turn = 3 * beat

// targets returns the fair shares: all members receive what they demand, or the same; then the rest is divided equally, because
// demands grow. Permits that cannot be divided are lent in turn.
func (l *leader) targets(now time.Time) map[string]float64 {
	ids := slices.SortedFunc(maps.Keys(l.claims), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.claims[a].Demand, l.claims[b].Demand), cmp.Compare(a, b))
	})
	shares := make(map[string]float64, len(ids))
	rest := l.limit
	for i, id := range ids {
		shares[id] = min(l.claims[id].Demand, rest/float64(len(ids)-i))
		rest -= shares[id]
	}
	left := l.limit
	for _, id := range ids {
		shares[id] += rest / float64(len(ids))
		left -= math.Floor(shares[id] + rounding)
	}
	if !l.whole || len(ids) == 0 {
		return shares
	}
	slices.Sort(ids)
	first := int(now.UnixNano()/int64(turn)) % len(ids)
	for i := range ids {
		id := ids[(first+i)%len(ids)]
		share := math.Floor(shares[id] + rounding)
		if shares[id]-share > rounding && left >= 1-rounding {
			share++
			left--
		}
		shares[id] = share
	}
	return shares
}

// rounding is the tolerance of sums of shares.
const rounding = 1e-6

package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/testhook"
)

// policyNames are the policies that operators set, change and remove while the queues are in use.
var policyNames = []string{"everything", "quorum", "one work"}

func init() {
	RegisterActor(func(*Life) []Actor { return []Actor{policies{}} })
	RegisterAct(Act{
		Name: "policy", Weight: 6,
		Draw: func(random *rand.Rand, shape Shape) (all []Step) {
			for range 2 + random.IntN(5) {
				all = append(all, Step{On: oneOf(random, shape.Names()...), N: random.IntN(len(policyNames))})
			}
			return all
		},
		Do: changePolicy,
	})
}

// changePolicy sets or removes a policy. Its limits and times exceed those of a life, so that it orders no loss of a message.
func changePolicy(l *Life, s Step) {
	b := l.Server.Broker()
	if b == nil {
		return
	}
	random, v := s.Random(), testhook.Of(b).(interface{ Node() *node.Node }).Node().VHost("/")
	name := policyNames[s.N]
	if random.IntN(2) == 0 {
		if v.DeletePolicy(name, false) {
			l.Count("policy removed")
		}
		return
	}
	const day = int64(24 * time.Hour / time.Millisecond)
	possible := vhost.Definition{
		"message-ttl": (20 + random.Int64N(20)) * day, "expires": (20 + random.Int64N(20)) * day,
		"max-length": 1_000_000 + random.Int64N(1000), "max-length-bytes": int64(1e12), "overflow": "reject-publish",
		"dead-letter-exchange": "none", "delivery-limit": 1_000_000 + random.Int64N(1000),
	}
	p := vhost.Policy{Name: name, Pattern: ".*", ApplyTo: "queues", Priority: float64(random.IntN(3)), Definition: vhost.Definition{}}
	for _, key := range []string{"message-ttl", "expires", "max-length", "max-length-bytes", "overflow", "dead-letter-exchange", "delivery-limit"} {
		if random.IntN(2) == 0 {
			p.Definition[key] = possible[key]
		}
	}
	if len(p.Definition) == 0 {
		p.Definition["max-length"] = possible["max-length"]
	}
	switch s.N {
	case 1:
		p.ApplyTo = "quorum_queues"
	case 2:
		p.Pattern = "^" + strings.ReplaceAll(s.On, ".", `\.`)
	}
	if _, err := v.SetPolicy(p); err != nil {
		l.Broken("a valid policy can be set while queues are in use", "%s: %v", fmt.Sprint(p.Definition), err)
		return
	}
	l.Count("policy")
}

// policies is an Actor that removes the policies at the end of a life, which occupy memory.
type policies struct{}

// Begin implements Actor.
func (policies) Begin(*Life) {}

// Heal implements Actor.
func (policies) Heal(*Life) {}

// Idle implements Actor.
func (policies) Idle(*Life) string { return "" }

// End implements Actor.
func (policies) End(l *Life) {
	if b := l.Server.Broker(); b != nil {
		for _, name := range policyNames {
			testhook.Of(b).(interface{ Node() *node.Node }).Node().VHost("/").DeletePolicy(name, false)
		}
	}
}

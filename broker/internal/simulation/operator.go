package simulation

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/testhook"
)

// operatorName is the owner of an operator's connections. Only faults of the broker affect them.
const operatorName = "operator"

// operator is an Actor that empties the failed queues that have a length limit. The acts of an operator also empty
// other failed queues, delete empty wait queues, and remove messages from work queues.
type operator struct {
	healed chan struct{}
	ended  chan struct{}
	group  sync.WaitGroup
}

func init() {
	RegisterActor(func(*Life) []Actor {
		return []Actor{&operator{healed: make(chan struct{}), ended: make(chan struct{})}}
	})
	RegisterAct(Act{
		Name: "empty-failed", Weight: 2,
		Draw: func(random *rand.Rand, shape Shape) []Step { return []Step{{On: oneOf(random, shape.Names()...)}} },
		Do: func(l *Life, s Step) {
			l.publisher().act(l, func() {
				if l.Book.takeFailed(l.work(s.On)) > 0 {
					l.Count("empty-failed")
				}
			})
		},
	})
	RegisterAct(Act{Name: "delete-wait-queues", Weight: 3, Fault: true, Do: func(l *Life, s Step) {
		l.publisher().act(l, func() { deleteWaitQueues(l, s) })
	}})
	RegisterAct(Act{
		Name: "take", Weight: 1,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			return []Step{{On: oneOf(random, shape.Names()...), N: 1 + random.IntN(10)}}
		},
		Do: func(l *Life, s Step) { l.publisher().act(l, func() { take(l, s) }) },
	})
}

// Begin implements Actor. Once an hour, the operator empties the failed queues that have a length limit.
func (o *operator) Begin(l *Life) {
	o.group.Go(func() {
		for pause := time.Hour; ; {
			select {
			case <-o.ended:
				return
			case <-o.healed:
				pause = 20 * time.Second
			case <-time.After(pause):
			}
			for _, w := range l.Script.Shape.Works {
				if w.FailedMax > 0 {
					l.Book.takeFailed(w)
				}
			}
		}
	})
}

// Heal implements Actor. After Heal, the operator empties the failed queues every 20 seconds.
func (o *operator) Heal(*Life) { o.healed <- struct{}{} }

// Idle implements Actor.
func (o *operator) Idle(*Life) string { return "" }

// End implements Actor.
func (o *operator) End(*Life) {
	close(o.ended)
	o.group.Wait()
}

// deleteWaitQueues deletes some empty wait queues. Workers declare them again when they need them. deleteWaitQueues
// uses the inner API of the broker, because AMQP cannot delete a quorum queue with the if-empty flag.
func deleteWaitQueues(l *Life, s Step) {
	b := l.Server.Broker()
	if b == nil {
		return
	}
	random := s.Random()
	v := testhook.Of(b).(interface{ Node() *node.Node }).Node().VHost("/")
	for _, q := range v.Queues() {
		if !strings.Contains(q.Name(), ".wait.") || random.IntN(2) == 0 {
			continue
		}
		if _, err := v.DeleteQueue(q, queue.Condition{Empty: true}); err == nil {
			l.Count("delete-wait-queues")
		}
	}
}

// take removes messages from a work queue permanently.
func take(l *Life, s Step) {
	w := l.work(s.On)
	conn, err := l.Open(operatorName)
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	for range s.N {
		d, ok, err := ch.Get(findDesign(w.Design).Build(w).config.Queue, false)
		if err != nil || !ok {
			return
		}
		if m := l.Book.Find(d.Body); m != nil {
			l.Book.Lost(m, "taken by an operator")
			l.Count("take")
		}
		if err := d.Ack(false); err != nil {
			return
		}
	}
}

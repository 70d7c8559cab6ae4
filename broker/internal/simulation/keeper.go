package simulation

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/inside"
)

// keeperName is the owner of an operator's connections. No fault strikes them but those of the broker.
const keeperName = "operator"

// keeper is an Actor: an operator who empties failed queues that are full, and deletes wait queues that are empty.
type keeper struct {
	healed chan struct{}
	ended  chan struct{}
	group  sync.WaitGroup
}

func init() {
	RegisterActor(func(*Life) []Actor { return []Actor{&keeper{healed: make(chan struct{}), ended: make(chan struct{})}} })
	RegisterAct(Act{
		Name: "empty-failed", Weight: 2,
		Draw: func(random *rand.Rand, shape Shape) []Step { return []Step{{On: oneOf(random, shape.Names()...)}} },
		Do: func(l *Life, s Step) {
			l.publisher().act(l, func() {
				if l.Book.takeFailed(l.work(s.On)) > 0 {
					l.Struck("empty-failed")
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

// Begin implements Actor: full failed queues are emptied each hour.
func (k *keeper) Begin(l *Life) {
	k.group.Go(func() {
		for pause := time.Hour; ; {
			select {
			case <-k.ended:
				return
			case <-k.healed:
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

// Heal implements Actor: from now on, they are emptied at once.
func (k *keeper) Heal(*Life) { k.healed <- struct{}{} }

// Idle implements Actor.
func (k *keeper) Idle(*Life) string { return "" }

// End implements Actor.
func (k *keeper) End(*Life) {
	close(k.ended)
	k.group.Wait()
}

// deleteWaitQueues deletes some wait queues that are empty. They are declared again when they are needed. (AMQP cannot delete a
// quorum queue on the condition that it is empty.)
func deleteWaitQueues(l *Life, s Step) {
	b := l.Server.Broker()
	if b == nil {
		return
	}
	random := s.Random()
	v := inside.Of(b).(interface{ Node() *node.Node }).Node().VHost("/")
	for _, q := range v.Queues() {
		if !strings.Contains(q.Name(), ".wait.") || random.IntN(2) == 0 {
			continue
		}
		if _, err := v.DeleteQueue(q, queue.Condition{Empty: true}); err == nil {
			l.Struck("delete-wait-queues")
		}
	}
}

// take takes messages out of a work queue, for good.
func take(l *Life, s Step) {
	w := l.work(s.On)
	conn, err := l.Open(keeperName)
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
			l.Struck("take")
		}
		if err := d.Ack(false); err != nil {
			return
		}
	}
}

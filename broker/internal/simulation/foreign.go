package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// foreign is the behavior of a program that implements a published design with an AMQP client. The program does not use the
// headers and queues of Reprise.
type foreign struct {
	// attempt returns the number of the attempt, as the design counts it.
	attempt func(d amqp.Delivery) int
	// fail settles a failed delivery as the design specifies.
	fail func(ch *amqp.Channel, d amqp.Delivery) error
	// drops reports whether a retry loses the application headers of the message.
	drops bool
	// most is the number of attempts after which the program drops a message. 0 means never.
	most int
}

// coverArtRetries is the number of retries of a message without the header mb-retries.
const coverArtRetries = 4

func foreignCoverArt(Work, built) foreign {
	left := func(d amqp.Delivery) int {
		if v, ok := d.Headers["mb-retries"]; ok {
			n, _ := strconv.Atoi(fmt.Sprint(v))
			return n
		}
		return coverArtRetries
	}
	return foreign{
		drops:   true,
		attempt: func(d amqp.Delivery) int { return coverArtRetries - left(d) + 1 },
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			exchange := "cover-art-archive.failed"
			if left(d) > 0 {
				exchange = "cover-art-archive.retry"
			}
			texts, _ := d.Headers["mb-exceptions"].([]any)
			return testkit.Republish(ch, exchange, d.RoutingKey, d, func(p *amqp.Publishing) {
				p.Headers = amqp.Table{"mb-retries": strconv.Itoa(left(d) - 1), "mb-exceptions": append(slices.Clip(texts), any("no"))}
			})
		},
	}
}

func foreignStaking(w Work, _ built) foreign {
	made := func(d amqp.Delivery) int32 {
		n, _ := d.Headers["x-processing-attempts"].(int32)
		return n
	}
	return foreign{
		attempt: func(d amqp.Delivery) int { return int(made(d)) + 1 },
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			return testkit.Republish(ch, "", w.Name+"_delay", d, func(p *amqp.Publishing) {
				p.Headers["x-processing-attempts"] = made(d) + 1
				p.Expiration = strconv.FormatInt(w.Delays[0].Milliseconds(), 10)
			})
		},
	}
}

func foreignWorkRetry(_ Work, b built) foreign {
	return foreign{
		attempt: func(d amqp.Delivery) int {
			deaths, _ := d.Headers["x-death"].([]any)
			for _, e := range deaths {
				if death, _ := e.(amqp.Table); death["queue"] == b.config.Queue && death["reason"] == "rejected" {
					n, _ := death["count"].(int64)
					return int(n) + 1
				}
			}
			return 1
		},
		fail: func(_ *amqp.Channel, d amqp.Delivery) error { return d.Reject(false) },
	}
}

func foreignCDNPurge(w Work, _ built) foreign {
	last := func(d amqp.Delivery) int64 {
		deaths, _ := d.Headers["x-death"].([]any)
		if len(deaths) == 0 {
			return 0
		}
		newest, _ := deaths[0].(amqp.Table)
		text, _ := newest["original-expiration"].(string)
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	first := w.Delays[0].Milliseconds()
	return foreign{
		// Without a limit, the delay triples until a single message blocks the head of the wait queue for weeks.
		most: w.Attempts,
		attempt: func(d amqp.Delivery) int {
			n := 1
			for waited := last(d); waited >= first; waited /= 3 {
				n++
			}
			return n
		},
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			wait := 3 * last(d)
			if wait == 0 {
				wait = first
			}
			return testkit.Republish(ch, "cdn-purge.wait", d.RoutingKey, d, func(p *amqp.Publishing) { p.Expiration = strconv.FormatInt(wait, 10) })
		},
	}
}

// program is an Actor that consumes a work queue. A foreign value specifies its behavior.
type program struct {
	l     *Life
	work  Work
	built built
	does  foreign
	name  string
	ended chan struct{}
	group sync.WaitGroup
}

func foreignName(w Work, n int) string { return fmt.Sprintf("%s.foreign%d", w.Name, n) }

func init() {
	RegisterActor(func(l *Life) (all []Actor) {
		for _, w := range l.Script.Shape.Works {
			d := findDesign(w.Design)
			for n := range w.Foreign {
				b := d.Build(w)
				all = append(all, &program{l: l, work: w, built: b, does: d.Foreign(w, b), name: foreignName(w, n), ended: make(chan struct{})})
			}
		}
		return all
	})
	RegisterOwners(func(s Shape) (all []string) {
		for _, w := range s.Works {
			for n := range w.Foreign {
				all = append(all, foreignName(w, n))
			}
		}
		return all
	})
}

// Begin implements Actor.
func (p *program) Begin(*Life) {
	p.group.Go(func() {
		for {
			p.consume()
			select {
			case <-p.ended:
				return
			case <-time.After(time.Second):
			}
		}
	})
}

// Heal implements Actor.
func (p *program) Heal(*Life) {}

// Idle implements Actor.
func (p *program) Idle(*Life) string { return "" }

// End implements Actor.
func (p *program) End(*Life) {
	close(p.ended)
	p.group.Wait()
}

// consume processes one message at a time until the connection fails or the program stops.
func (p *program) consume() {
	conn, err := p.l.Open(p.name)
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	if err := ch.Qos(5, 0, false); err != nil {
		return
	}
	deliveries, err := ch.Consume(p.built.config.Queue, "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for {
		select {
		case <-p.ended:
			return
		case d, ok := <-deliveries:
			if !ok || p.handle(ch, d) != nil {
				return
			}
		}
	}
}

func (p *program) handle(ch *amqp.Channel, d amqp.Delivery) error {
	n := p.does.attempt(d)
	m, r := p.l.Book.delivered(p.name, p.work.Name, n, d)
	if m == nil {
		return d.Ack(false)
	}
	a := m.Plan.attempt(m.ID, n)
	select {
	case <-time.After(a.took):
	case <-p.ended:
		p.l.Book.end(m, r, a, true)
		return errDead
	}
	if a.manner != succeeds {
		a.manner = fails
	}
	p.l.Book.end(m, r, a, false)
	p.l.Count("foreign attempts")
	var err error
	how := reprise.EventDone
	switch {
	case a.manner == succeeds:
		err = d.Ack(false)
	case p.does.most > 0 && n >= p.does.most:
		p.l.Book.Lost(m, "dropped by "+p.name)
		err = d.Ack(false)
	default:
		how = reprise.EventRetried
		p.l.Book.foreign(m, p.does.drops)
		err = p.does.fail(ch, d)
	}
	if err == nil {
		p.l.Book.settled(m, r, how)
	}
	return err
}

// delivered records a delivery to a program that does not use Reprise.
func (b *Book) delivered(who, work string, attempt int, d amqp.Delivery) (*Message, *Run) {
	m := b.Find(d.Body)
	if m == nil || m.Work != work {
		b.l.Broken(promiseBack, "%s received %q", who, d.Body)
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &Run{Who: who, Attempt: attempt, Redelivered: d.Redelivered, MessageID: d.MessageId, Began: time.Now(), Asked: -1}
	m.Runs = append(m.Runs, r)
	b.note(m, "attempt %d at %s, redelivered %v", attempt, who, d.Redelivered)
	return m, r
}

// foreign records a retry by another program.
func (b *Book) foreign(m *Message, drops bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.Stripped = m.Stripped || drops
}

func (b *Book) settled(m *Message, r *Run, how reprise.EventKind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.How, r.Settled = how, time.Now()
}

package presettest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// foreignProgram is a program that implements a published design with an AMQP client. It does not know headers or queues of
// Reprise.
type foreignProgram struct {
	exchange, key string // destination of its messages
	queue         string // queue that it consumes
	queues        []string
	exchanges     []string

	declare func(ch *amqp.Channel) error

	// fail performs the steps of the design for a failed delivery.
	fail func(ch *amqp.Channel, d amqp.Delivery) error

	// fresh returns an error if the headers of a delivery indicate an earlier attempt, according to the design.
	fresh func(d amqp.Delivery) error
}

// foreignDelay is the retry delay of the designs in these tests.
const foreignDelay = 100 * time.Millisecond

// foreignCoverArt is the cover art indexer.
func foreignCoverArt() *foreignProgram {
	const base = "cover-art-archive"
	return &foreignProgram{
		exchange: base, key: "index", queue: base + ".index",
		queues:    []string{base + ".index", base + ".delete", base + ".move", base + ".retry", base + ".failed"},
		exchanges: []string{base, base + ".retry", base + ".failed"},
		declare: func(ch *amqp.Channel) error {
			errs := []error{
				ch.ExchangeDeclare(base, "direct", true, false, false, false, nil),
				ch.ExchangeDeclare(base+".retry", "fanout", true, false, false, false, nil),
				ch.ExchangeDeclare(base+".failed", "fanout", true, false, false, false, nil),
				declareQueue(ch, base+".retry", amqp.Table{"x-message-ttl": int32(foreignDelay.Milliseconds()), "x-dead-letter-exchange": base}),
				ch.QueueBind(base+".retry", "", base+".retry", false, nil),
				declareQueue(ch, base+".failed", nil),
				ch.QueueBind(base+".failed", "", base+".failed", false, nil),
			}
			for _, event := range []string{"index", "delete", "move"} {
				errs = append(errs, declareQueue(ch, base+"."+event, nil), ch.QueueBind(base+"."+event, event, base, false, nil))
			}
			return errors.Join(errs...)
		},
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			remaining := 4
			if v, found := d.Headers["mb-retries"]; found {
				remaining, _ = strconv.Atoi(fmt.Sprint(v))
			}
			exchange := base + ".failed"
			if remaining > 0 {
				exchange = base + ".retry"
			}
			texts, _ := d.Headers["mb-exceptions"].([]any)
			return testkit.Republish(ch, exchange, d.RoutingKey, d, func(p *amqp.Publishing) {
				p.Headers = amqp.Table{"mb-retries": strconv.Itoa(remaining - 1), "mb-exceptions": append(slices.Clip(texts), any("no"))}
			})
		},
		fresh: func(d amqp.Delivery) error {
			for name, v := range d.Headers {
				if !netAMQPReads(v) {
					return fmt.Errorf("header %s is %#v, which crashes Net::AMQP", name, v)
				}
			}
			return absent(d, "mb-retries", "mb-exceptions")
		},
	}
}

// foreignStaking is a service that consumes a staking queue.
func foreignStaking(queue string) *foreignProgram {
	delay := queue + "_delay"
	return &foreignProgram{
		key: queue, queue: queue, queues: []string{queue, delay},
		declare: func(ch *amqp.Channel) error {
			return errors.Join(
				ch.ExchangeDeclare("common_dlx", "direct", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}),
				declareQueue(ch, delay, amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}),
				declareQueue(ch, queue, amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "common_dlx", "x-dead-letter-routing-key": queue + "_routing_key"}),
				ch.QueueBind(delay, queue+"_routing_key", "common_dlx", false, nil),
			)
		},
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			attempts, _ := d.Headers["x-processing-attempts"].(int32)
			return testkit.Republish(ch, "", delay, d, func(p *amqp.Publishing) {
				p.Headers["x-processing-attempts"] = attempts + 1
				p.Expiration = strconv.FormatInt(foreignDelay.Milliseconds(), 10)
			})
		},
		fresh: func(d amqp.Delivery) error { return absent(d, "x-processing-attempts") },
	}
}

// foreignWorkRetry rejects failed messages. The broker retries them.
func foreignWorkRetry(prefix string) *foreignProgram {
	work, retry := prefix+"WorkExchange", prefix+"RetryExchange"
	return &foreignProgram{
		exchange: work, key: "", queue: prefix + "WorkQueue",
		queues: []string{prefix + "WorkQueue", prefix + "RetryQueue"}, exchanges: []string{work, retry},
		declare: func(ch *amqp.Channel) error {
			return errors.Join(
				ch.ExchangeDeclare(work, "direct", true, false, false, false, nil),
				ch.ExchangeDeclare(retry, "direct", true, false, false, false, nil),
				declareQueue(ch, prefix+"WorkQueue", amqp.Table{"x-dead-letter-exchange": retry}),
				declareQueue(ch, prefix+"RetryQueue", amqp.Table{"x-dead-letter-exchange": work, "x-message-ttl": int32(foreignDelay.Milliseconds())}),
				ch.QueueBind(prefix+"WorkQueue", "", work, false, nil),
				ch.QueueBind(prefix+"RetryQueue", "", retry, false, nil),
			)
		},
		fail: func(_ *amqp.Channel, d amqp.Delivery) error { return d.Reject(false) },
		fresh: func(d amqp.Delivery) error {
			deaths, _ := d.Headers["x-death"].([]any)
			for _, e := range deaths {
				if death, _ := e.(amqp.Table); death["queue"] == prefix+"WorkQueue" {
					return fmt.Errorf("unexpected x-death: %v", death)
				}
			}
			return nil
		},
	}
}

// foreignCDNPurge has the names of the final code in the published document.
func foreignCDNPurge(prefix string) *foreignProgram {
	primary, wait := prefix+"primary-exchange", prefix+"wait-exchange"
	return &foreignProgram{
		exchange: primary, key: "routing-key-b", queue: prefix + "primary-queue",
		queues: []string{prefix + "primary-queue", prefix + "wait-queue"}, exchanges: []string{primary, wait},
		declare: func(ch *amqp.Channel) error {
			errs := []error{
				ch.ExchangeDeclare(primary, "direct", true, false, false, false, nil),
				ch.ExchangeDeclare(wait, "direct", true, false, false, false, nil),
				declareQueue(ch, prefix+"primary-queue", nil),
				declareQueue(ch, prefix+"wait-queue", amqp.Table{"x-dead-letter-exchange": primary}),
			}
			for _, key := range []string{"routing-key-a", "routing-key-b"} {
				errs = append(errs, ch.QueueBind(prefix+"primary-queue", key, primary, false, nil), ch.QueueBind(prefix+"wait-queue", key, wait, false, nil))
			}
			return errors.Join(errs...)
		},
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			milliseconds := float64(foreignDelay.Milliseconds())
			if last, waited := lastExpiration(d); waited {
				milliseconds = math.Round(3 * last)
			}
			return testkit.Republish(ch, wait, d.RoutingKey, d, func(p *amqp.Publishing) {
				p.Expiration = strconv.FormatFloat(milliseconds, 'f', -1, 64)
			})
		},
		fresh: func(d amqp.Delivery) error {
			if last, waited := lastExpiration(d); waited {
				return fmt.Errorf("x-death contains an expiration of %v ms", last)
			}
			return nil
		},
	}
}

// lastExpiration reads the newest entry of x-death as the published code does: without an original-expiration, the result
// is not a number.
func lastExpiration(d amqp.Delivery) (milliseconds float64, waited bool) {
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) == 0 {
		return 0, false
	}
	newest, _ := deaths[0].(amqp.Table)
	text, _ := newest["original-expiration"].(string)
	milliseconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		milliseconds = math.NaN()
	}
	return milliseconds, true
}

func declareQueue(ch *amqp.Channel, name string, args amqp.Table) error {
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	return err
}

func absent(d amqp.Delivery, headers ...string) error {
	for _, name := range headers {
		if v, found := d.Headers[name]; found {
			return fmt.Errorf("header %s: got %v, want none", name, v)
		}
	}
	return nil
}

// foreignDesigns maps each design to a function that returns a program of the design, the name of the failed queue, and
// the strategy of a worker.
var foreignDesigns = map[string]func(t *testing.T, b testkit.Target) (*foreignProgram, string, topology.Strategy){
	"coverart": func(t *testing.T, b testkit.Target) (*foreignProgram, string, topology.Strategy) {
		testkit.Alone(t, b, "cover-art-archive")
		return foreignCoverArt(), preset.CoverArtFailedQueue, preset.CoverArt{RetryDelay: foreignDelay}.Strategy()
	},
	"staking": func(t *testing.T, _ testkit.Target) (*foreignProgram, string, topology.Strategy) {
		queue := testkit.Name(t, "back") + "_staking_queue"
		return foreignStaking(queue), queue + "_failed", preset.Staking{Queues: []string{queue}, RetryDelay: foreignDelay}.Strategy()
	},
	"workretry": func(t *testing.T, _ testkit.Target) (*foreignProgram, string, topology.Strategy) {
		p := testkit.Name(t, "back") + "."
		return foreignWorkRetry(p), p + "WorkQueue.failed", preset.WorkRetry{Prefix: p, RetryDelay: foreignDelay}.Strategy()
	},
	"cdnpurge": func(t *testing.T, _ testkit.Target) (*foreignProgram, string, topology.Strategy) {
		p := testkit.Name(t, "back") + "."
		return foreignCDNPurge(p), p + "failed", preset.CDNPurge{
			Exchange: p + "primary-exchange", Queue: p + "primary-queue", WaitExchange: p + "wait-exchange", WaitQueue: p + "wait-queue",
			FailedQueue: p + "failed", RoutingKeys: []string{"routing-key-a", "routing-key-b"}, First: foreignDelay,
		}.Strategy()
	},
}

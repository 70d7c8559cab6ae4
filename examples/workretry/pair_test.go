package workretry

import (
	"bytes"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology/preset"
)

// A quarter of an hour of retries, at the published delay.
func TestPair(t *testing.T) {
	inMemory(t, func(t *testing.T, b Broker) {
		var out bytes.Buffer
		begin := time.Now()
		if err := (Pair{Jobs: 6, Seed: 1}).Run(t.Context(), b, &out); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin).Truncate(time.Second); took != 15*time.Minute {
			t.Errorf("it took %s: three retries wait 300000 ms each", took)
		}
		const want = "balance: 17 attempts = 5 done + 11 rejected + 1 parked + 0 given back\n" +
			"of 6 jobs sent: 6 ended here, 0 are elsewhere: in RetryQueue, or with other programs\n"
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("printed:\n%s", &out)
		}
	})
}

// Another program publishes a job, and has had its first attempt.
func TestPairBesideAnother(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		design := preset.WorkRetry{RetryDelay: 20 * time.Millisecond, Prefix: testkit.Name(t, "pair") + "."}
		conn, err := amqp.Dial(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		l := &look{conn: conn, ch: ch}
		defer func() {
			if err := l.remove(design.Topology()); err != nil {
				t.Error(err)
			}
		}()
		// As such a program declares it, without a failed queue.
		for _, x := range []string{"Work", "Retry"} {
			other := map[string]string{"Work": "Retry", "Retry": "Work"}[x]
			args := amqp.Table{"x-dead-letter-exchange": design.Prefix + other + "Exchange"}
			if x == "Retry" {
				args["x-message-ttl"] = int32(20)
			}
			if err := ch.ExchangeDeclare(design.Prefix+x+"Exchange", "direct", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := ch.QueueDeclare(design.Prefix+x+"Queue", true, false, false, false, args); err != nil {
				t.Fatal(err)
			}
			if err := ch.QueueBind(design.Prefix+x+"Queue", "", design.Prefix+x+"Exchange", false, nil); err != nil {
				t.Fatal(err)
			}
		}
		err = ch.PublishWithContext(t.Context(), design.Prefix+"WorkExchange", "", true, false, amqp.Publishing{Body: []byte(`{"job": "theirs"}`)})
		if err != nil {
			t.Fatal(err)
		}
		err = ch.PublishWithContext(t.Context(), design.Prefix+"WorkExchange", "", true, false, amqp.Publishing{Body: []byte(`{"job": 99, "fails": -1}`)})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var d amqp.Delivery
			testkit.Eventually(t, 20*time.Second, func() (found bool) {
				d, found, _ = ch.Get(design.Prefix+"WorkQueue", false)
				return found
			})
			if err := d.Reject(false); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		if err := (Pair{Design: design, Jobs: 12, Seed: 1}).Run(t.Context(), Broker{URL: b.URL}, &out); err != nil {
			t.Error(err)
		}
		for _, want := range []string{
			`attempt 2 of {"job": "theirs"}: done`,
			`attempt 3 of {"job": 99, "fails": -1}: failed: rejected`,
			`attempt 4 of {"job": 99, "fails": -1}: failed, and none is left: parked`,
			"of 12 jobs sent: 12 ended here",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("not printed: %s\n%s", want, &out)
			}
		}
	})
}

func TestPairSaysWhichFlag(t *testing.T) {
	inMemory(t, func(t *testing.T, b Broker) {
		var out bytes.Buffer
		if err := (Pair{Jobs: 1, Seed: 1}).Run(t.Context(), b, &out); err != nil {
			t.Fatal(err)
		}
		for flag, design := range map[string]preset.WorkRetry{
			"-delay":     {RetryDelay: time.Second},
			"-kind":      {Kind: "fanout"},
			"-transient": {TransientExchanges: true},
			"-type":      {QueueType: "quorum"},
		} {
			out.Reset()
			err := (Pair{Design: design}).Run(t.Context(), b, &out)
			if err == nil || !strings.Contains(err.Error(), "(here: say with "+flag+" what it is deployed with)") || out.Len() > 0 {
				t.Errorf("%+v: %v, and printed is %q", design, err, &out)
			}
		}
	})
}

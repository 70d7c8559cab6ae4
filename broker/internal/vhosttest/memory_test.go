package vhosttest

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"testing"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// The memory account counts between half and twice the real memory use of a declaration.
func TestDeclarationSizeMatchesMemoryUse(t *testing.T) {
	declare := func(v *vhost.VHost, name string, args amqpwire.Table) error {
		_, err := v.DeclareQueue(&amqpwire.QueueDeclare{Queue: name, Arguments: args}, nil, func(string) error { return nil })
		return err
	}
	key := func(format string) func(int) string { return func(i int) string { return fmt.Sprintf(format, i) } }
	bind := func(exchange string, key func(i int) string, args func(i int) amqpwire.Table) func(*vhost.VHost, int) error {
		return func(v *vhost.VHost, i int) error {
			return v.Bind(vhost.BindingInfo{Source: exchange, Destination: "q", Key: key(i), Arguments: args(i)}, nil)
		}
	}
	none := func(int) amqpwire.Table { return nil }
	for name, one := range map[string]func(*vhost.VHost, int) error{
		"queue": func(v *vhost.VHost, i int) error { return declare(v, fmt.Sprint("queue-", i), nil) },
		"queue with arguments": func(v *vhost.VHost, i int) error {
			return declare(v, fmt.Sprint("queue-", i), amqpwire.Table{{Name: "x-expires", Value: int32(1 << 30)}, {Name: "x-dead-letter-exchange", Value: "dlx"}})
		},
		"exchange": func(v *vhost.VHost, i int) error {
			return v.DeclareExchange(&amqpwire.ExchangeDeclare{Exchange: fmt.Sprint("exchange-", i), Type: "fanout"})
		},
		"direct binding": bind("amq.direct", key("key-%d"), none),
		"topic binding":  bind("amq.topic", key("%d.is.the.first.word"), none),
		"long topic":     bind("amq.topic", func(i int) string { return fmt.Sprintf("%d.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a", i) }, none),
		"headers binding": bind("amq.headers", key("%d"), func(i int) amqpwire.Table {
			return amqpwire.Table{{Name: "n", Value: int32(1000 + i)}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			const n = 5000
			limit := budget.NewLimit(math.MaxInt64)
			v := vhost.New("/", vhost.Config{Log: slog.New(slog.DiscardHandler), Topology: limit})
			defer v.Close()
			if err := declare(v, "q", nil); err != nil {
				t.Fatal(err)
			}
			counted, taken := limit.Used(), heapSize()
			for i := range n {
				if err := one(v, i); err != nil {
					t.Fatal(err)
				}
			}
			counted, taken = (limit.Used()-counted)/n, (heapSize()-taken)/n
			if counted > 2*taken || taken > 2*counted {
				t.Errorf("account: got %d bytes, want between half and twice %d", counted, taken)
			}
		})
	}
}

func heapSize() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees unused objects of pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

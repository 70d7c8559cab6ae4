package topologytest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/topology"
)

// arrival describes the destination of a message and the time that it spends in wait queues.
type arrival struct {
	exchange, key string
	after         time.Duration
	stations      int
}

// walk simulates the path of a message through a topology. Exchanges route by the headers, and each queue holds the message
// for the duration of x-message-ttl before it dead-letters the message.
func walk(t interface{ Fatalf(string, ...any) }, topo topology.Topology, exchange, key string, headers topology.Table) arrival {
	a := arrival{exchange: exchange, key: key}
	for range 100 {
		if !slices.ContainsFunc(topo.Exchanges, func(x topology.Exchange) bool { return x.Name == a.exchange }) {
			return a
		}
		var to []topology.Binding
		for _, b := range topo.Bindings {
			if b.Exchange == a.exchange && matches(b.Args, headers) {
				to = append(to, b)
			}
		}
		if len(to) != 1 {
			t.Fatalf("destinations of exchange %q: got %d, want 1: %v", a.exchange, len(to), to)
		}
		if to[0].ToExchange != "" {
			a.exchange = to[0].ToExchange
			continue
		}
		i := slices.IndexFunc(topo.Queues, func(q topology.Queue) bool { return q.Name == to[0].Queue })
		if i < 0 {
			t.Fatalf("queue %q is not declared", to[0].Queue)
		}
		args := topo.Queues[i].Args
		a.after += time.Duration(args["x-message-ttl"].(int64)) * time.Millisecond
		a.stations++
		a.exchange = args["x-dead-letter-exchange"].(string)
		if key, found := args["x-dead-letter-routing-key"]; found {
			a.key = key.(string)
		}
	}
	t.Fatalf("message passes too many queues")
	return a
}

func matches(args, headers topology.Table) bool {
	for name, value := range args {
		if name != "x-match" && headers[name] != value {
			return false
		}
	}
	return len(args) == 0 || args["x-match"] == "all-with-x"
}

func scheduled() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.OneOf(
		rapid.Int64Range(1, int64(topology.MaxSchedule)),
		rapid.Int64Range(1, int64(10*time.Second)),
		rapid.Map(rapid.Int64Range(1, int64(topology.MaxSchedule/time.Second)), func(s int64) int64 { return s * int64(time.Second) }),
	), func(n int64) time.Duration { return time.Duration(n) })
}

func TestLevelsDelayMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delay := scheduled().Draw(t, "delay")
		target := rapid.SampledFrom([][2]string{{"", "orders"}, {"orders", "some.key"}, {"amq.topic", ""}}).Draw(t, "target")
		hop, err := topology.Levels{}.Schedule(target[0], target[1], delay)
		if err != nil {
			t.Fatal(err)
		}
		if err := hop.Topology.Validate(); err != nil {
			t.Fatal(err)
		}
		whole := (delay + time.Second - 1).Truncate(time.Second)
		if hop.Delay != whole || hop.RoutingKey != target[1] || hop.Way != topology.Copy || hop.TTL != 0 {
			t.Fatalf("hop for delay %[2]s: got %+[1]v, want delay %[3]s and routing key %[4]q", hop, delay, whole, target[1])
		}
		got := walk(t, hop.Topology, hop.Exchange, hop.RoutingKey, hop.Headers)
		if want := (arrival{target[0], target[1], whole, hop.Stations}); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// Headers of an earlier, longer delay do not change the route of a message.
func TestLevelsIgnoreHeadersOfEarlierDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := topology.Delivery{Queue: "orders", RoutingKey: "other"}
		before, err1 := topology.Levels{}.Wait(d, scheduled().Draw(t, "before"))
		hop, err2 := topology.Levels{}.Wait(d, scheduled().Draw(t, "delay"))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		headers := before.Headers.Clone()
		maps.Copy(headers, hop.Headers)
		// The topologies do not contradict each other, because a longer delay only adds levels.
		all := before.Topology.Merge(hop.Topology)
		if err := all.Validate(); err != nil {
			t.Fatal(err)
		}
		got := walk(t, all, hop.Exchange, hop.RoutingKey, headers)
		if want := (arrival{"", "orders", hop.Delay, hop.Stations}); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestLevelsOfDifferentTargetsShareNoQueues(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "exchange.a", "a.level.1", "a.level-1", "exchange.a.level.1", "level.1", "exchange.exchange.a"})
	rapid.Check(t, func(t *rapid.T) {
		x, y := name.Draw(t, "one"), name.Draw(t, "other")
		var one, other topology.Hop
		var err1, err2 error
		one, err1 = topology.Levels{}.Schedule("", x, topology.MaxSchedule)
		if rapid.Bool().Draw(t, "both queues") {
			if x == y {
				return
			}
			other, err2 = topology.Levels{}.Schedule("", y, topology.MaxSchedule)
		} else {
			other, err2 = topology.Levels{}.Schedule(y, "key", topology.MaxSchedule)
		}
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for _, q := range one.Topology.Queues {
			if slices.ContainsFunc(other.Topology.Queues, func(o topology.Queue) bool { return o.Name == q.Name }) {
				t.Fatalf("%s and %s share queue %s", x, y, q.Name)
			}
		}
	})
}

func TestLevelsBounds(t *testing.T) {
	l := topology.Levels{}
	long := strings.Repeat("n", 255)
	for _, tc := range []struct {
		name          string
		exchange, key string
		delay         time.Duration
		want          string // expected error
	}{
		{"too long a delay", "x", "k", topology.MaxSchedule + 1, "at most 74565h24m16s"},
		{"no destination", "", "", time.Second, "must not both be empty"},
		{"too long a key", "x", long + "n", time.Second, "at most 255 bytes: got 256"},
		{"too long a queue", "", long[:247], time.Second, "at most 246"},
		{"too long an exchange", long[:238], "k", time.Second, "at most 237"},
		{"reserved queue name", "", "amq.gen-x", time.Second, `must not begin with "amq."`},
	} {
		if hop, err := l.Schedule(tc.exchange, tc.key, tc.delay); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %+v, %v, want %q", tc.name, hop, err, tc.want)
		}
	}
	for _, at := range [][2]string{{"", long[:246]}, {long[:237], long}, {"amq.topic", "k"}} {
		hop, err := l.Schedule(at[0], at[1], topology.MaxSchedule)
		if err == nil {
			err = hop.Topology.Validate()
		}
		if err != nil {
			t.Error(err)
		}
	}
	// A message that is already due is not delayed.
	for _, delay := range []time.Duration{0, -time.Hour} {
		if hop, err := l.Schedule("x", "k", delay); err != nil || hop.Exchange != "x" || hop.RoutingKey != "k" || hop.Delay != 0 || hop.Headers != nil {
			t.Errorf("hop: got %+v, %v, want x with key k, without delay or headers", hop, err)
		}
	}
	// A delay above the maximum becomes the maximum.
	if hop, err := l.Wait(topology.Delivery{Queue: "q"}, 1<<63-1); err != nil || hop.Delay != topology.MaxSchedule {
		t.Errorf("delay: got %s, %v, want %s", hop.Delay, err, topology.MaxSchedule)
	}
}

// docs/delays.md states how many queues each delay needs.
func TestLevelsDeclareQueueForEachBit(t *testing.T) {
	for delay, want := range map[time.Duration]int{
		time.Second: 1, time.Hour: 13, 24 * time.Hour: 18, 30 * 24 * time.Hour: 23, 48 * 24 * time.Hour: 23,
		365 * 24 * time.Hour: 26, topology.MaxSchedule: 29,
	} {
		hop, err := topology.Levels{}.Schedule("", "orders", delay)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(hop.Topology.Queues); got != want {
			t.Errorf("delay %s: got %d queues, want %d", delay, got, want)
		}
	}
}

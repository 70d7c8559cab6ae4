package route

import (
	"fmt"
	"iter"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func queues(t *Table[string], x *Exchange[string], key string) string {
	found := t.Route(nil, x, Message{Key: key})
	slices.Sort(found)
	return strings.Join(found, " ")
}

func toQueue(name string) Destination[string] { return Destination[string]{Queue: name} }

func TestDirectMatchesEqualKey(t *testing.T) {
	table := NewTable[string]()
	x := table.Add(Exchange[string]{Name: "x", Kind: Direct})
	table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: "k"})
	table.Bind(x, Binding[string]{Destination: toQueue("b"), Key: "k"})
	table.Bind(x, Binding[string]{Destination: toQueue("c"), Key: "other"})
	if got := queues(table, x, "k"); got != "a b" {
		t.Errorf("key k: got queues %q, want a and b", got)
	}
	if got := queues(table, x, "K"); got != "" {
		t.Errorf("key K: got queues %q, want none", got)
	}
}

func TestFanoutMatchesEveryKey(t *testing.T) {
	table := NewTable[string]()
	x := table.Add(Exchange[string]{Name: "x", Kind: Fanout})
	table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: "k"})
	table.Bind(x, Binding[string]{Destination: toQueue("b"), Key: ""})
	if got := queues(table, x, "whatever"); got != "a b" {
		t.Errorf("got queues %q, want a and b", got)
	}
}

func TestQueueGetsOneCopyPerMessage(t *testing.T) {
	table := NewTable[string]()
	x := table.Add(Exchange[string]{Name: "x", Kind: Topic})
	y := table.Add(Exchange[string]{Name: "y", Kind: Fanout})
	table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: "#"})
	table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: "k.*"})
	table.Bind(x, Binding[string]{Destination: Destination[string]{Exchange: y}, Key: "k.#"})
	table.Bind(y, Binding[string]{Destination: toQueue("a"), Key: ""})
	if got := queues(table, x, "k.1"); got != "a" {
		t.Errorf("got queues %q, want a once", got)
	}
}

func TestRouteThroughExchangeCycle(t *testing.T) {
	table := NewTable[string]()
	x := table.Add(Exchange[string]{Name: "x", Kind: Fanout})
	y := table.Add(Exchange[string]{Name: "y", Kind: Fanout})
	table.Bind(x, Binding[string]{Destination: Destination[string]{Exchange: y}, Key: ""})
	table.Bind(y, Binding[string]{Destination: Destination[string]{Exchange: x}, Key: ""})
	table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: ""})
	table.Bind(y, Binding[string]{Destination: toQueue("b"), Key: ""})
	if got := queues(table, y, ""); got != "a b" {
		t.Errorf("got queues %q, want a and b", got)
	}
}

func TestBindIsIdempotentPerArguments(t *testing.T) {
	table := NewTable[string]()
	x := table.Add(Exchange[string]{Name: "x", Kind: Direct})
	if !table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: "k"}) || table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: "k"}) {
		t.Error("Bind reports the wrong result for a new or an existing binding")
	}
	table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: "k", Encoded: "args"})
	table.Unbind(x, Binding[string]{Destination: toQueue("a"), Key: "k"})
	if got := queues(table, x, "k"); got != "a" {
		t.Errorf("after Unbind: got queues %q, want a, whose binding has different arguments", got)
	}
	table.Unbind(x, Binding[string]{Destination: toQueue("a"), Key: "k", Encoded: "args"})
	if got := queues(table, x, "k"); got != "" || x.InUse() {
		t.Errorf("after the last Unbind: got queues %q, in use %v, want no queues, false", got, x.InUse())
	}
}

func TestAutoDeleteExchangeIsDeletedWithLastBinding(t *testing.T) {
	table := NewTable[string]()
	x := table.Add(Exchange[string]{Name: "x", Kind: Direct, AutoDelete: true})
	y := table.Add(Exchange[string]{Name: "y", Kind: Direct, AutoDelete: true})
	if table.Exchange("x") == nil {
		t.Fatal("auto-delete exchange was deleted before its first binding")
	}
	table.Bind(y, Binding[string]{Destination: Destination[string]{Exchange: x}, Key: "k"})
	table.Bind(x, Binding[string]{Destination: toQueue("a"), Key: "k"})
	table.DeleteQueue("a")
	if table.Exchange("x") != nil || table.Exchange("y") != nil {
		t.Error("auto-delete exchanges still exist after the deletion of the queue")
	}
}

func TestTopicPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern string
		yes, no []string
	}{
		{"a.b", []string{"a.b"}, []string{"a", "a.b.c", "", "A.b"}},
		{"*", []string{"a", "*", "#"}, []string{"", "a.b", "."}},
		{"*.*", []string{"a.b", "."}, []string{"a", "a.b.c"}},
		{"#", []string{"", "a", "a.b.c", "."}, nil},
		{"", []string{""}, []string{"a", "."}},
		{"#.#", []string{"", "a", "a.b"}, nil},
		{"*.#", []string{"a", "a.b", "."}, []string{""}},
		{"a.#.b", []string{"a.b", "a.x.b", "a.x.y.b", "a.b.b"}, []string{"a", "a.b.x", "b"}},
		{"#.a.#.a", []string{"a.a", "x.a.y.a"}, []string{"a", "a.x"}},
	} {
		table := NewTable[string]()
		x := table.Add(Exchange[string]{Name: "x", Kind: Topic})
		table.Bind(x, Binding[string]{Destination: toQueue("q"), Key: test.pattern})
		for _, key := range test.yes {
			if queues(table, x, key) != "q" {
				t.Errorf("pattern %q does not match key %q", test.pattern, key)
			}
		}
		for _, key := range test.no {
			if queues(table, x, key) != "" {
				t.Errorf("pattern %q matches key %q", test.pattern, key)
			}
		}
	}
}

// Each binding key matches the same routing keys as an equivalent regular expression over words.
func TestTopicMatchesLikeRegularExpression(t *testing.T) {
	wordsOf := func(alphabet ...string) *rapid.Generator[[]string] {
		return rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 6)
	}
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable[string]()
		x := table.Add(Exchange[string]{Name: "x", Kind: Topic})
		patterns := rapid.SliceOfN(wordsOf("a", "b", "*", "#"), 1, 8).Draw(t, "patterns")
		for i, p := range patterns {
			table.Bind(x, Binding[string]{Destination: toQueue(fmt.Sprint(i)), Key: strings.Join(p, ".")})
		}
		removed := rapid.IntRange(-1, len(patterns)-1).Draw(t, "removed")
		if removed >= 0 {
			table.Unbind(x, Binding[string]{Destination: toQueue(fmt.Sprint(removed)), Key: strings.Join(patterns[removed], ".")})
		}
		key := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 6).Draw(t, "key")

		var want []string
		for i, p := range patterns {
			var expr strings.Builder
			for _, w := range p {
				switch w {
				case "*":
					expr.WriteString("[a-z],")
				case "#":
					expr.WriteString("([a-z],)*")
				default:
					expr.WriteString(w + ",")
				}
			}
			subject := strings.Join(append(key, ""), ",")
			if i != removed && regexp.MustCompile("^"+expr.String()+"$").MatchString(subject) {
				want = append(want, fmt.Sprint(i))
			}
		}
		slices.Sort(want)
		if got := queues(table, x, strings.Join(key, ".")); got != strings.Join(want, " ") {
			t.Fatalf("key %q: got queues %q, want %q", key, got, want)
		}
	})
}

// countingArguments implements Arguments, and counts the fields that are read.
type countingArguments struct {
	names  []string
	looked *int
}

func (c countingArguments) Get(name string) (any, bool) {
	for _, each := range c.names {
		if *c.looked++; each == name {
			return true, true
		}
	}
	return nil, false
}

func (c countingArguments) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, name := range c.names {
			if *c.looked++; !yield(name, true) {
				return
			}
		}
	}
}

// Matching many headers against a binding with many arguments takes linear time.
func TestHeadersMatchInLinearTime(t *testing.T) {
	const n = 1000
	looked := 0
	wanted, message := countingArguments{looked: &looked}, countingArguments{looked: &looked}
	for i := range n {
		wanted.names = append(wanted.names, fmt.Sprint("w", i))
		message.names = append(message.names, fmt.Sprint("m", i))
	}
	message.names = append(message.names, fmt.Sprint("w", n-1))
	table := NewTable[string]()
	x := table.Add(Exchange[string]{Name: "x", Kind: Headers})
	table.Bind(x, Binding[string]{Destination: toQueue("any"), Arguments: anyOf{wanted}})
	looked = 0
	if got := table.Route(nil, x, Message{Headers: message, More: []string{"a", "b"}}); len(got) != 1 {
		t.Errorf("got queues %q, want one", got)
	}
	if looked > 10*n {
		t.Errorf("fields read by a match: got %d, want at most %d", looked, 10*n)
	}
}

// anyOf contains the arguments of a binding whose x-match is "any".
type anyOf struct{ countingArguments }

func (a anyOf) Get(name string) (any, bool) {
	if name == "x-match" {
		return matchAny, true
	}
	return a.countingArguments.Get(name)
}

// Even if each routing key of a message matches all queues, Route stores each queue only once.
func TestRouteStoresEachQueueOnce(t *testing.T) {
	const n = 1000
	for _, kind := range []Kind{Fanout, Topic} {
		table := NewTable[string]()
		x := table.Add(Exchange[string]{Name: "x", Kind: kind})
		var keys []string
		for i := range n {
			table.Bind(x, Binding[string]{Destination: toQueue(fmt.Sprint(i)), Key: "#"})
			keys = append(keys, fmt.Sprint(i))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		found := table.Route(nil, x, Message{Key: "k", More: keys})
		runtime.ReadMemStats(&after)
		slices.Sort(found)
		if len(slices.Compact(found)) != n || len(found) != n {
			t.Errorf("%s: got %d queues, want each of %d queues once", kind, len(found), n)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
			t.Errorf("%s: allocated %d bytes, want at most 2 MiB", kind, got)
		}
	}
}

func BenchmarkFanoutTo10000(b *testing.B) {
	table := NewTable[string]()
	x := table.Add(Exchange[string]{Name: "x", Kind: Fanout})
	for i := range 10_000 {
		table.Bind(x, Binding[string]{Destination: toQueue(fmt.Sprint(i))})
	}
	for b.Loop() {
		table.Route(nil, x, Message{Key: "k"})
	}
}

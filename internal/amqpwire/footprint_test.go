package amqpwire

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// heapOf decodes n values, and returns the growth of the heap per value, in bytes.
func heapOf[T any](n int, decode func() T) float64 {
	all := make([]T, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = decode()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(all)
	return (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(n)
}

func checkFootprint(t rapid.TB, table Table) {
	t.Helper()
	encoded, err := table.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	decode := func() Table {
		decoded, err := ParseTable(encoded)
		if err != nil {
			t.Fatal(err)
		}
		return decoded
	}
	copies := max(20, min(5000, 1<<20/len(encoded)))
	have, want := float64(decode().Footprint()), heapOf(copies, decode)
	const noise = 16 // bytes per table that other goroutines allocate
	if have > 2*want+noise || want > 2*have+noise {
		t.Errorf("Footprint: got %.0f bytes, heap grew by %.0f bytes for %d bytes on the wire: %.200v", have, want, len(encoded), table)
	}
}

func TestFootprint(t *testing.T) {
	wide := func(n int, value func(int) any) (table Table) {
		for i := range n {
			table = append(table, Field{Name: fmt.Sprint(i), Value: value(i)})
		}
		return table
	}
	for name, table := range map[string]Table{
		"none":       nil,
		"nothing":    {{}},
		"one":        {{Name: "x-queue-type", Value: "quorum"}},
		"voids":      wide(10_000, func(int) any { return nil }),
		"numbers":    wide(1000, func(i int) any { return int64(i) << 20 }),
		"tables":     wide(1000, func(int) any { return Table{{Name: "a", Value: "b"}} }),
		"long text":  {{Name: "text", Value: strings.Repeat("x", 100_000)}},
		"bytes":      wide(100, func(i int) any { return make([]byte, i) }),
		"array":      {{Name: "array", Value: Array(make([]any, 10_000))}},
		"texts":      {{Name: "array", Value: Array{"", "a", "ab", strings.Repeat("c", 33)}}},
		"deep array": {{Name: "array", Value: Array{Array{Array{Array{Array{true}}}}}}},
	} {
		t.Run(name, func(t *testing.T) { checkFootprint(t, table) })
	}
}

func TestFootprintOfAnyTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkFootprint(t, genTable.Draw(t, "table")) })
}

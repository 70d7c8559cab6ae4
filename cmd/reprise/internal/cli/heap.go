package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapFloor is how much the heap may grow to before the garbage collector runs, however little of it is in use. A broker
// through which messages rush keeps almost none of them: left to itself, the collector would run many times a second to
// free a few megabytes.
const heapFloor = 24 << 20

// calmCollector gives this process that floor. Whoever sets GOGC has decided otherwise.
func calmCollector() {
	if _, set := os.LookupEnv("GOGC"); !set {
		adjustAfterEachCollection()
	}
}

// adjustAfterEachCollection leaves an object that nobody uses, to learn when it was collected.
func adjustAfterEachCollection() {
	type unused struct{ _ *byte } // with a pointer, it shares its room with nothing else
	runtime.AddCleanup(new(unused), func(int) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		debug.SetGCPercent(percentFor(live[0].Value.Uint64()))
		adjustAfterEachCollection()
	}, 0)
}

// percentFor is by how much a heap may grow: to the floor, or at least to twice what it was, as it is by default. The result
// applies until the next collection, when more may be live. Go's minimum heap is 4 MiB × GOGC/100, so 500 % reaches the floor
// for any smaller heap.
func percentFor(live uint64) int {
	return max(100, int(heapFloor*100/max(live, 4<<20))-100)
}

package localbroker

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapFloor is the approximate heap size below which the garbage collector does not run again after its first run. A
// broker with high throughput keeps almost none of its messages in memory. With the default settings, the collector
// would run many times a second to free a few megabytes.
const heapFloor = 24 << 20

// setHeapFloor applies heapFloor to this process, unless the environment variable GOGC is set.
func setHeapFloor() {
	if _, set := os.LookupEnv("GOGC"); !set {
		adjustAfterEachCollection()
	}
}

// adjustAfterEachCollection sets a cleanup on an unreachable object, to run code after each collection.
func adjustAfterEachCollection() {
	type unused struct{ _ *byte } // the pointer prevents the allocator from combining it with other objects
	runtime.AddCleanup(new(unused), func(int) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		debug.SetGCPercent(percentFor(live[0].Value.Uint64()))
		adjustAfterEachCollection()
	}, 0)
}

// percentFor returns the percentage by which the heap may grow: up to the floor, but at least 100%, which is the
// default. The result applies until the next collection, when more of the heap may be live. Go's minimum heap is 4 MiB
// × GOGC/100, so with 500%, a smaller live heap can still grow to at least 20 MiB.
func percentFor(live uint64) int {
	return max(100, int(heapFloor*100/max(live, 4<<20))-100)
}

package logstore_test

import (
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/logstore"
	"github.com/reprisemq/reprise/broker/internal/store"
)

var waiting = flag.Int("waiting", 200_000, "number of messages of BenchmarkWaiting")

// contenders are the stores that the benchmarks compare. The processor time includes the kernel's, because the machine may be
// shared and the wall time is noisy.
var contenders = []struct {
	name string
	open func(dir string) (store.Store, error)
}{
	{"pebble", func(dir string) (store.Store, error) {
		return diskstore.Open(diskstore.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	}},
	{"pebble with memtables of 32 MiB", func(dir string) (store.Store, error) {
		return diskstore.Open(diskstore.Options{Dir: dir, Log: slog.New(slog.DiscardHandler), MemTable: 32 << 20})
	}},
	{"log", func(dir string) (store.Store, error) {
		return logstore.Open(logstore.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	}},
}

type body []byte

func (b body) Append(dst []byte) []byte { return append(dst, b...) }

func cpu() (user, system time.Duration) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// measure reports the processor time per message of what do does with a number of messages.
func measure(b *testing.B, messages int, do func()) {
	b.Helper()
	runtime.GC()
	user, system := cpu()
	do()
	user2, system2 := cpu()
	user, system = user2-user, system2-system
	b.ReportMetric(float64((user+system).Nanoseconds())/1000/float64(messages), "cpu-µs/msg")
	b.ReportMetric(float64(user.Nanoseconds())/1000/float64(messages), "user-µs/msg")
	b.ReportMetric(float64(system.Nanoseconds())/1000/float64(messages), "sys-µs/msg")
}

const group = 100

// BenchmarkFlow saves groups of 100 messages, waits for the confirm of each group, and acknowledges the messages of the group
// that is lag groups older, except one of each kept messages. Before the measurement, it saves as many messages. Use -benchtime=300000x.
func BenchmarkFlow(b *testing.B) {
	for _, c := range contenders {
		for _, s := range []struct{ size, queues, lag, kept int }{
			{1024, 1, 1, 0}, {64, 1, 1, 0}, {1024, 50, 1, 0}, {1024, 1, 1000, 0}, {1024, 1, 1, 10},
		} {
			b.Run(fmt.Sprintf("%s/%dB/queues=%d/lag=%d/kept=%d", c.name, s.size, s.queues, s.lag, s.kept), func(b *testing.B) {
				if b.N < 2*group*s.lag {
					return
				}
				opened, err := c.open(b.TempDir() + "/data")
				if err != nil {
					b.Fatal(err)
				}
				message := body(make([]byte, s.size))
				key := func(i int) store.Key {
					return store.Key{Queue: uint64(1 + i%s.queues), Order: uint64(1 + i)}
				}
				refs := make([]store.Ref, group*(s.lag+1))
				flow := func(from, to int) {
					for i := from; i < to; i += group {
						for j := i; j < i+group; j++ {
							refs[j%len(refs)] = opened.Put(store.Entry{Key: key(j), State: store.State{Bytes: int64(s.size)}, Message: message})
						}
						if err := opened.Wait(b.Context(), refs[i%len(refs)].Ticket); err != nil {
							b.Fatal(err)
						}
						if old := i - group*(s.lag-1); old >= 0 {
							for j := old; j < old+group; j++ {
								if s.kept == 0 || j%s.kept != 0 {
									opened.Delete(key(j), refs[j%len(refs)], int64(s.size))
								}
							}
						}
					}
					if err := opened.Flush(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				flow(0, b.N) // until the store reuses its files
				b.SetBytes(int64(s.size))
				b.ResetTimer()
				measure(b, b.N, func() { flow(b.N, 2*b.N) })
				b.StopTimer()
				if err := opened.Close(true); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkWaiting fills a queue, restarts, and then reads and acknowledges all messages in order. Use -benchtime=1x and
// -waiting=N.
func BenchmarkWaiting(b *testing.B) {
	for _, c := range contenders {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				dir := b.TempDir() + "/data"
				n, message := *waiting, body(make([]byte, 1024))
				opened, err := c.open(dir)
				if err != nil {
					b.Fatal(err)
				}
				check := func(err error) {
					if err != nil {
						b.Fatal(err)
					}
				}
				part := func(name string, do func()) {
					user, system := cpu()
					began := time.Now()
					do()
					user2, system2 := cpu()
					b.ReportMetric(float64((user2-user+system2-system).Nanoseconds())/1000/float64(n), name+"-cpu-µs/msg")
					b.ReportMetric(time.Since(began).Seconds(), name+"-s")
				}
				part("fill", func() {
					for i := 1; i <= n; i++ {
						if wait := opened.Backlog(); wait != nil {
							<-wait
						}
						opened.Put(store.Entry{Key: store.Key{Queue: 1, Order: uint64(i)}, State: store.State{Bytes: 1024}, Message: message})
						if i%1000 == 0 {
							check(opened.Flush(b.Context()))
						}
					}
					check(opened.Flush(b.Context()))
				})
				memory(b, "waiting", n)
				check(opened.Close(true))
				part("start", func() {
					opened, err = c.open(dir)
					check(err)
					levels, err := opened.Levels(1)
					check(err)
					if len(levels) != 1 || levels[0].Messages != n {
						b.Fatalf("levels: got %v, want %d messages", levels, n)
					}
				})
				memory(b, "started", n)
				part("drain", func() {
					for after := uint64(0); after < uint64(n); {
						some, err := opened.Load(1, 0, after, 1024, 256<<10)
						check(err)
						if len(some) == 0 || some[0].Order != after+1 {
							b.Fatalf("after %d: got %d messages", after, len(some))
						}
						for _, m := range some {
							opened.Delete(m.Key, store.Ref{}, 1024)
						}
						after = some[len(some)-1].Order
						if wait := opened.Backlog(); wait != nil {
							<-wait
						}
					}
					check(opened.Flush(b.Context()))
				})
				check(opened.Close(true))
			}
		})
	}
}

// memory reports the heap that remains after a collection.
func memory(b *testing.B, name string, messages int) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapInuse)/(1<<20), name+"-heap-MiB")
	b.ReportMetric(float64(resident())/(1<<20), name+"-rss-MiB")
}

package diskstore

import (
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

type body []byte

func (b body) Append(dst []byte) []byte { return append(dst, b...) }

// BenchmarkPut saves messages of 1 KiB, and deletes each message when it is durable. At any time, a fixed number of
// messages are not yet durable.
func BenchmarkPut(b *testing.B) {
	for _, inFlight := range []int{1, 100, 1000} {
		b.Run(strconv.Itoa(inFlight), func(b *testing.B) {
			s, err := Open(Options{Dir: b.TempDir() + "/data", Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close(true)
			message := body(make([]byte, 1024))
			refs := make([]Ref, inFlight)
			b.SetBytes(1024)
			for i := 0; b.Loop(); i++ {
				slot := i % inFlight
				if i >= inFlight {
					if err := s.Wait(b.Context(), refs[slot].Ticket); err != nil {
						b.Fatal(err)
					}
					s.Delete(keyOf(1, 0, uint64(i-inFlight+1)), refs[slot], 1024)
				}
				refs[slot] = s.Put(Entry{Key: keyOf(1, 0, uint64(i+1)), State: State{Bytes: 1024}, Message: message})
			}
		})
	}
}

// BenchmarkAcknowledge saves messages of 1 KiB as fast as the backlog permits, like publishers without confirms, and
// deletes them after they are durable. It reports the time until the first acknowledgement in each commit is durable.
func BenchmarkAcknowledge(b *testing.B) {
	s, err := Open(Options{Dir: b.TempDir() + "/data", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(true)
	d := s.(*disk)
	tickets := func() (committed, gathering Ticket) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.committed, d.pending.ticket
	}
	message := body(make([]byte, 1024))
	waits := new(ackWaits)
	var refs []Ref // of the unacknowledged messages, oldest first
	var noted Ticket
	b.SetBytes(1024)
	for put := uint64(1); b.Loop(); put++ {
		if begins := s.Backlog(); begins != nil {
			<-begins
		}
		refs = append(refs, s.Put(Entry{Key: keyOf(1, 0, put), State: State{Bytes: 1024}, Message: message}))
		committed, gathering := tickets()
		for ; len(refs) > 0 && refs[0].Ticket <= committed; refs = refs[1:] {
			s.Delete(keyOf(1, 0, put-uint64(len(refs))+1), refs[0], 1024)
			if gathering > noted {
				noted = gathering
				s.Notify(&ackTimer{at: time.Now(), waits: waits})
			}
		}
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	waits.report(b)
}

// ackWaits collects the times until acknowledgements were durable.
type ackWaits struct {
	mu  sync.Mutex
	all []time.Duration
}

func (w *ackWaits) report(b *testing.B) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		return // too few messages
	}
	slices.Sort(w.all)
	b.ReportMetric(float64(w.all[len(w.all)/2].Microseconds())/1000, "p50-ms/ack")
	b.ReportMetric(float64(w.all[len(w.all)-1].Microseconds())/1000, "max-ms/ack")
}

// ackTimer measures the time until the first acknowledgement in a commit is durable.
type ackTimer struct {
	at    time.Time
	waits *ackWaits
}

// Committed implements [Waiter].
func (a *ackTimer) Committed(Ticket) {
	a.waits.mu.Lock()
	defer a.waits.mu.Unlock()
	a.waits.all = append(a.waits.all, time.Since(a.at))
}

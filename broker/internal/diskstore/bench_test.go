package diskstore

import (
	"log/slog"
	"strconv"
	"testing"
)

type body []byte

func (b body) Append(dst []byte) []byte { return append(dst, b...) }

// BenchmarkPut keeps messages of 1 KiB, with so many on their way to the disk at a time, and forgets them once they are
// there.
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

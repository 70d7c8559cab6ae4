// Command fsyncloop appends records to a file, makes them durable, and prints the rate as JSON. The rate is an upper limit
// for a broker that syncs each batch of messages to this disk before it confirms them.
//
//	fsyncloop -dir /var/tmp -record 1024 -per-sync 100 -duration 10s
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

type options struct {
	dir      string
	record   int
	perSync  int
	ahead    int64
	duration time.Duration
}

// result is the output in JSON.
type result struct {
	RecordsPerSecond float64 `json:"records_per_s"`
	SyncsPerSecond   float64 `json:"syncs_per_s"`
	P50              float64 `json:"sync_p50_us"`
	P99              float64 `json:"sync_p99_us"`
	Max              float64 `json:"sync_max_us"`
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "", "directory of the file, which is removed at the end (default: directory for temporary files)")
	flag.IntVar(&o.record, "record", 1024, "size of a record in bytes")
	flag.IntVar(&o.perSync, "per-sync", 100, "number of records per write and fdatasync")
	flag.Int64Var(&o.ahead, "ahead", 0, "bytes to allocate in advance, so that a sync does not change the file size; 0 means none")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "duration of the measurement")
	flag.Parse()
	r, err := run(o)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fsyncloop:", err)
		os.Exit(1)
	}
}

func run(o options) (result, error) {
	f, err := os.CreateTemp(o.dir, "fsyncloop-")
	if err != nil {
		return result{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	batch := make([]byte, o.record*o.perSync)
	for i := range batch {
		batch[i] = byte(i) // not zeros, which some disks treat specially
	}
	took := hdrhistogram.New(100, int64(time.Minute), 3)
	begin := time.Now()
	var written, allocated int64
	for time.Since(begin) < o.duration {
		if o.ahead > 0 && written+int64(len(batch)) > allocated {
			if err := syscall.Fallocate(int(f.Fd()), 0, allocated, o.ahead); err != nil {
				return result{}, fmt.Errorf("cannot preallocate the file: %w", err)
			}
			allocated += o.ahead
		}
		if _, err := f.Write(batch); err != nil {
			return result{}, err
		}
		written += int64(len(batch))
		start := time.Now()
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return result{}, fmt.Errorf("fdatasync: %w", err)
		}
		_ = took.RecordValue(int64(time.Since(start)))
	}
	seconds := time.Since(begin).Seconds()
	syncs := float64(took.TotalCount()) / seconds
	return result{
		RecordsPerSecond: syncs * float64(o.perSync), SyncsPerSecond: syncs,
		P50: float64(took.ValueAtQuantile(50)) / 1e3, P99: float64(took.ValueAtQuantile(99)) / 1e3,
		Max: float64(took.Max()) / 1e3,
	}, nil
}

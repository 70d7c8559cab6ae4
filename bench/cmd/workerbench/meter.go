package main

import (
	"errors"
	"os"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

// warmUpShare is the fraction of the messages that are handled before the measurement begins.
const warmUpShare = 0.2

// meter counts the messages of a job, and measures the resource use after the warm-up. The method handled is safe for
// concurrent use.
type meter struct {
	broker int // process ID of the broker; 0 if unknown

	warmUp, messages int64
	count            atomic.Int64
	from             atomic.Pointer[sample]
	to               sample
	all              chan struct{} // closed when all messages are handled
}

func (m *meter) begin(messages int) {
	m.messages, m.warmUp = int64(messages), int64(warmUpShare*float64(messages))
	m.all = make(chan struct{})
}

// handled counts a message.
func (m *meter) handled() {
	switch m.count.Add(1) {
	case m.warmUp:
		s := m.sample()
		m.from.Store(&s)
	case m.messages:
		close(m.all)
	}
}

// end takes the last sample of the measurement.
func (m *meter) end() { m.to = m.sample() }

// sample contains the total resource use until one point in time.
type sample struct {
	at                time.Time
	own, broker, busy float64 // processor time in seconds: this process, the broker, the machine
	allocs, bytes     uint64
	err               error
}

func (m *meter) sample() sample {
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(allocated)
	s := sample{allocs: allocated[0].Value.Uint64(), bytes: allocated[1].Value.Uint64()}
	var errs [3]error
	s.own, errs[0] = proc.CPU(os.Getpid())
	if m.broker > 0 {
		s.broker, errs[1] = proc.CPU(m.broker)
	}
	s.busy, errs[2] = proc.Busy()
	s.err = errors.Join(errs[:]...)
	s.at = time.Now()
	return s
}

// result is the output of a contender process.
type result struct {
	Messages   float64 `json:"messages"`
	Seconds    float64 `json:"seconds"`
	CPU        float64 `json:"cpu_s"`
	BrokerCPU  float64 `json:"broker_cpu_s"`
	OthersCPU  float64 `json:"others_cpu_s"`
	Allocs     float64 `json:"allocs"`
	AllocBytes float64 `json:"alloc_bytes"`
}

func (m *meter) result() (result, error) {
	from, to := m.from.Load(), m.to
	if from == nil || to.at.IsZero() {
		return result{}, errors.New("contender stopped before all messages were handled")
	}
	r := result{
		Messages: float64(m.messages - m.warmUp), Seconds: to.at.Sub(from.at).Seconds(),
		CPU: to.own - from.own, BrokerCPU: to.broker - from.broker,
		Allocs: float64(to.allocs - from.allocs), AllocBytes: float64(to.bytes - from.bytes),
	}
	r.OthersCPU = to.busy - from.busy - r.CPU - r.BrokerCPU
	return r, errors.Join(from.err, to.err)
}

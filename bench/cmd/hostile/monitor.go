package main

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	amqp "github.com/rabbitmq/amqp091-go"
)

// monitor is the well-behaved client. It publishes 200 messages per second with publisher confirms, and also consumes and
// acknowledges them. The latency of a message is the time from its due time until it is both delivered and confirmed.
type monitor struct {
	publisher, consumer *amqp.Connection
	stop                chan struct{}
	running             sync.WaitGroup

	mu       sync.Mutex
	taken    *hdrhistogram.Histogram
	arrived  map[uint64]time.Time // due times of messages that are not both delivered and confirmed
	sent     int
	complete int
	problems []string
}

const (
	interval = 5 * time.Millisecond
	queue    = "well-behaved"
)

func newMonitor(url string) (_ *monitor, err error) {
	w := &monitor{stop: make(chan struct{}), taken: newHistogram(), arrived: make(map[uint64]time.Time)}
	if w.publisher, err = amqp.Dial(url); err != nil {
		return nil, err
	}
	if w.consumer, err = amqp.Dial(url); err != nil {
		return nil, err
	}
	out, err := w.publisher.Channel()
	if err != nil {
		return nil, err
	}
	in, err := w.consumer.Channel()
	if err != nil {
		return nil, err
	}
	if err := out.Confirm(false); err != nil {
		return nil, err
	}
	if err := in.Qos(100, 0, false); err != nil {
		return nil, err
	}
	if _, err := in.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return nil, err
	}
	deliveries, err := in.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	confirms := out.NotifyPublish(make(chan amqp.Confirmation, 100_000))
	w.running.Go(func() { w.publish(out) })
	w.running.Go(func() { w.consume(deliveries) })
	w.running.Go(func() {
		for c := range confirms {
			w.half(c.DeliveryTag)
		}
	})
	return w, nil
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
}

func (w *monitor) publish(ch *amqp.Channel) {
	start := time.Now()
	for n := uint64(1); ; n++ {
		due := start.Add(time.Duration(n) * interval)
		select {
		case <-w.stop:
			return
		case <-time.After(time.Until(due)):
		}
		w.mu.Lock()
		w.sent++
		w.mu.Unlock()
		body := binary.BigEndian.AppendUint64(nil, n)
		body = binary.BigEndian.AppendUint64(body, uint64(due.UnixNano()))
		w.expect(n, due)
		if err := ch.Publish("", queue, false, false, amqp.Publishing{Body: body}); err != nil {
			w.problem("publish: %v", err)
			return
		}
	}
}

func (w *monitor) consume(deliveries <-chan amqp.Delivery) {
	for d := range deliveries {
		if err := d.Ack(false); err != nil {
			w.problem("ack: %v", err)
			return
		}
		w.half(binary.BigEndian.Uint64(d.Body))
	}
}

// expect records the due time of message n. Call it before publishing the message.
func (w *monitor) expect(n uint64, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrived[n] = due
}

// firstHalf marks a second key in arrived. Message n also has the key n|firstHalf while it is delivered or confirmed,
// but not both.
const firstHalf = 1 << 63

// half records the delivery or the confirm of message n. After both, the message is complete.
func (w *monitor) half(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due, waits := w.arrived[n]
	if !waits {
		return
	}
	if _, first := w.arrived[n|firstHalf]; !first {
		w.arrived[n|firstHalf] = due
		return
	}
	delete(w.arrived, n)
	delete(w.arrived, n|firstHalf)
	w.complete++
	_ = w.taken.RecordValue(max(1, time.Since(due).Microseconds()))
}

func (w *monitor) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stop:
	default:
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

// latencies contains the latencies of a period.
type latencies struct{ taken *hdrhistogram.Histogram }

// next ends a period and returns its latencies. A message that has been in flight for more than a second is included,
// with the time since its due time.
func (w *monitor) next() latencies {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := latencies{w.taken}
	for n, due := range w.arrived {
		if took := time.Since(due); n&firstHalf == 0 && took > time.Second {
			_ = l.taken.RecordValue(took.Microseconds())
		}
	}
	w.taken = newHistogram()
	return l
}

func (l latencies) at(percentile float64) string {
	if l.taken.TotalCount() == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f ms", float64(l.taken.ValueAtPercentile(percentile))/1000)
}

// troubles describes the problems of the well-behaved client. Unless publishers are blocked, troubles first waits up to
// 30 s until fewer than 100 messages are in flight.
func (w *monitor) troubles(blocked bool) string {
	var missing int
	for range 300 {
		if blocked {
			break
		}
		w.mu.Lock()
		missing = w.sent - w.complete
		w.mu.Unlock()
		if missing < 100 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.problems
	if missing >= 100 && !blocked {
		all = append(all, fmt.Sprintf("%d of %d messages still in flight 30 s after the attack", missing, w.sent))
	}
	return strings.Join(all, "; ")
}

func (w *monitor) close() {
	w.mu.Lock()
	close(w.stop)
	w.mu.Unlock()
	_ = w.publisher.Close()
	_ = w.consumer.Close()
	w.running.Wait()
}

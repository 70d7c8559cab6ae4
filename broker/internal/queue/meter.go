package queue

import (
	"sync"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/alarm"
)

// itemOverhead is the approximate memory use of a message, not including its body, properties and additional routing keys.
const itemOverhead = 256

// keyOverhead is the approximate memory use of an additional routing key, not including its text.
const keyOverhead = 24

// Size returns the approximate memory use of the message.
func (m *Message) Size() int64 {
	n := len(m.Body) + len(m.Properties) + itemOverhead
	for _, key := range m.CC {
		n += len(key) + keyOverhead
	}
	for _, key := range m.BCC {
		n += len(key) + keyOverhead
	}
	return int64(n)
}

// Meter counts the memory of the messages of all queues, and raises an alarm above its limit. It counts a message once
// for each queue that contains the message. A nil Meter does not count memory. A Meter is safe for concurrent use.
type Meter struct {
	limit int64
	used  atomic.Int64

	mu   sync.Mutex // locked by Add only above the limit, or if the used memory falls to 90% of the limit
	over alarm.Alarm
}

// NewMeter returns a meter with a limit in bytes.
func NewMeter(limit int64) *Meter {
	return &Meter{limit: limit, over: alarm.Alarm{Resource: alarm.Memory}}
}

// Limit returns the limit in bytes.
func (m *Meter) Limit() int64 { return m.limit }

// Used returns the used memory in bytes.
func (m *Meter) Used() int64 {
	if m == nil {
		return 0
	}
	return m.used.Load()
}

// Alarm returns the memory alarm. It is raised when the used memory exceeds the limit, and cleared when the used memory
// falls to 90% of the limit, so that the alarm does not toggle with each message.
func (m *Meter) Alarm() *alarm.Alarm { return &m.over }

func (m *Meter) exceeded() bool { return m != nil && m.over.Raised() != nil }

func (m *Meter) low() int64 { return m.limit / 10 * 9 }

// Add adds n bytes to the used memory. A negative n releases memory.
func (m *Meter) Add(n int64) {
	if m == nil || n == 0 {
		return
	}
	used := m.used.Add(n)
	if n > 0 && used <= m.limit || n < 0 && (used > m.low() || used-n <= m.low()) {
		return // no threshold was crossed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch used := m.used.Load(); {
	case used > m.limit:
		m.over.Set(true)
	case used <= m.low():
		m.over.Set(false)
	}
}

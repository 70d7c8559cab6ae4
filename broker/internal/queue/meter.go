package queue

import (
	"sync"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/alarm"
)

// itemOverhead is about what a message costs beside its body and properties.
const itemOverhead = 256

// keyOverhead is about what a further routing key costs beside its text.
const keyOverhead = 24

// Size is about how much memory the message takes.
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

// Meter counts the memory that the messages of all queues take, and says when it is too much. A message in several queues
// is counted once for each. The nil Meter counts nothing.
type Meter struct {
	limit int64
	used  atomic.Int64

	mu   sync.Mutex // taken only where a limit is crossed
	over alarm.Alarm
}

// NewMeter returns a meter with a limit in bytes.
func NewMeter(limit int64) *Meter {
	return &Meter{limit: limit, over: alarm.Alarm{Resource: alarm.Memory}}
}

// Limit returns the limit in bytes.
func (m *Meter) Limit() int64 { return m.limit }

// Used returns how many bytes are taken.
func (m *Meter) Used() int64 {
	if m == nil {
		return 0
	}
	return m.used.Load()
}

// Alarm returns the alarm that is raised while too much is taken. It is cleared not at once when there is one message less,
// but at nine tenths of the limit.
func (m *Meter) Alarm() *alarm.Alarm { return &m.over }

func (m *Meter) exceeded() bool { return m != nil && m.over.Raised() != nil }

func (m *Meter) low() int64 { return m.limit / 10 * 9 }

// Add counts memory that is taken, or with a negative number given back.
func (m *Meter) Add(n int64) {
	if m == nil || n == 0 {
		return
	}
	used := m.used.Add(n)
	if n > 0 && used <= m.limit || n < 0 && (used > m.low() || used-n <= m.low()) {
		return // nothing was crossed
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

package reprisetest

import (
	"testing/synctest"
	"time"
)

// What happens on a connection is noticed at once. How often a condition is looked
// at besides is a matter of what it costs.
const (
	realPause    = 5 * time.Millisecond
	virtualPause = time.Hour
)

// Advance lets d pass, and returns when all that was due has been done. In a
// bubble it takes no time.
func (b *Broker) Advance(d time.Duration) {
	time.Sleep(d)
	b.still()
}

// still returns when every goroutine of the bubble waits for something. In real
// time it does nothing.
func (b *Broker) still() {
	if !b.virtual {
		return
	}
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	synctest.Wait()
}

// await asks again and again until the answer is yes, and reports whether that
// came before the test's patience was over. The answer may say when to ask again,
// whatever happens until then.
func (b *Broker) await(ask func() (yes bool, again time.Time)) bool {
	deadline := time.Now().Add(b.config.Patience)
	for {
		stirred := b.stirring()
		b.still()
		if b.overtime.Load() {
			return false
		}
		yes, again := ask()
		if yes {
			return true
		}
		pause := time.Until(deadline)
		if pause <= 0 {
			return false
		}
		if !again.IsZero() {
			pause = min(pause, max(time.Until(again), time.Millisecond))
		}
		if b.virtual {
			pause = min(pause, virtualPause)
		} else {
			pause = min(pause, realPause)
		}
		timer := time.NewTimer(pause)
		select {
		case <-stirred:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// stir tells those who wait that something has happened.
func (b *Broker) stir() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stirred != nil {
		close(b.stirred)
		b.stirred = nil
	}
}

// stirring returns a channel that is closed when something happens.
func (b *Broker) stirring() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stirred == nil {
		b.stirred = make(chan struct{})
	}
	return b.stirred
}

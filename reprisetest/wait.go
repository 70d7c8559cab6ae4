package reprisetest

import (
	"testing/synctest"
	"time"
)

// Events on a connection wake waiting functions immediately. To limit the cost, other conditions are checked only at
// these intervals.
const (
	realPause    = 5 * time.Millisecond
	virtualPause = time.Hour
)

// Advance waits for the duration d. In a bubble, it does not take real time, and returns when the immediate effects of
// all events that are due have completed.
func (b *Broker) Advance(d time.Duration) {
	time.Sleep(d)
	b.waitIdle()
}

// waitIdle returns when all other goroutines in the bubble are durably blocked. In real time, it does nothing.
func (b *Broker) waitIdle() {
	if !b.virtual {
		return
	}
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	synctest.Wait()
}

// await calls ask repeatedly until ask returns true, and reports whether this occurred within Config.Timeout. ask may
// return the time of the next call. Events on connections cause earlier calls.
func (b *Broker) await(ask func() (yes bool, again time.Time)) bool {
	deadline := time.Now().Add(b.config.Timeout)
	for {
		changed := b.nextEvent()
		b.waitIdle()
		if b.limitExceeded.Load() {
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
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// notify wakes the waiting functions after an event.
func (b *Broker) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stirred != nil {
		close(b.stirred)
		b.stirred = nil
	}
}

// nextEvent returns a channel that is closed at the next event.
func (b *Broker) nextEvent() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stirred == nil {
		b.stirred = make(chan struct{})
	}
	return b.stirred
}

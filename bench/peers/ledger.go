package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// ledger records the attempts that workers report on a socket.
type ledger struct {
	listener net.Listener
	changed  chan struct{} // receives after an attempt

	mu       sync.Mutex
	first    int // id of the first message of the current step
	fail     []int
	attempts [][]attempt // by message
	handled  int         // messages with an attempt
	done     int         // messages with an attempt that succeeded, or the last attempt before they are parked
	duplicates,
	reports int
	since time.Time // see next
	next  time.Time // time of the first first attempt after since, which needs the store; a handler of Watermill retries without it
}

type attempt struct {
	number int
	at     time.Time
}

func newLedger(socket string) (*ledger, error) {
	l := &ledger{changed: make(chan struct{}, 1)}
	var err error
	if l.listener, err = net.Listen("unix", socket); err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.listener.Accept()
			if err != nil {
				return
			}
			go l.read(conn)
		}
	}()
	return l, nil
}

func (l *ledger) read(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewScanner(conn); in.Scan(); {
		var id, number int
		var micros int64
		if _, err := fmt.Sscan(in.Text(), &id, &number, &micros); err == nil {
			l.add(id, attempt{number, time.UnixMicro(micros)})
		}
	}
}

func (l *ledger) add(id int, a attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := id - l.first
	if i < 0 || i >= len(l.attempts) {
		return // of an earlier step
	}
	l.reports++
	if len(l.attempts[i]) == 0 {
		l.handled++
	}
	final := func(a attempt) bool { return a.number > l.fail[i] }
	if final(a) {
		if slices.ContainsFunc(l.attempts[i], final) {
			l.duplicates++
		} else {
			l.done++
		}
	}
	l.attempts[i] = append(l.attempts[i], a)
	if !l.since.IsZero() && l.next.IsZero() && a.number == 1 && a.at.After(l.since) {
		l.next = a.at
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// begin starts a step. Message i succeeds in the attempt after fail[i].
func (l *ledger) begin(first int, fail []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.fail, l.attempts = first, fail, make([][]attempt, len(fail))
	l.handled, l.done, l.duplicates, l.reports = 0, 0, 0, 0
	l.since, l.next = time.Time{}, time.Time{}
}

var errTimeout = errors.New("no progress")

// await waits until reached is true. It returns errTimeout if no attempt is reported for the given time.
func (l *ledger) await(ctx context.Context, timeout time.Duration, reached func() bool) error {
	for {
		l.mu.Lock()
		ok := reached()
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-l.changed:
		case <-time.After(timeout):
			return errTimeout
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// span returns the times of the first and of the latest attempt.
func (l *ledger) span() (first, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, attempts := range l.attempts {
		for _, a := range attempts {
			if first.IsZero() || a.at.Before(first) {
				first = a.at
			}
			if a.at.After(last) {
				last = a.at
			}
		}
	}
	return first, last
}

// lateness returns the sorted durations between the planned and the real start of each retry.
func (l *ledger) lateness(delay time.Duration) (all []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, attempts := range l.attempts {
		for i := 1; i < len(attempts); i++ {
			if attempts[i].number == attempts[i-1].number+1 {
				all = append(all, attempts[i].at.Sub(attempts[i-1].at)-delay)
			}
		}
	}
	slices.Sort(all)
	return all
}

// waiting returns the number of messages that wait for a retry.
func (l *ledger) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handled - l.done
}

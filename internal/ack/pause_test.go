package ack

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// timedChannel is a channel that records each settlement and its time.
type timedChannel struct {
	recorder
	from time.Time
}

func (c *timedChannel) Ack(tag uint64, multiple bool) error {
	verb := "ack"
	if multiple {
		verb = "ack up to"
	}
	c.frames = append(c.frames, fmt.Sprintf("%s: %s %d", time.Since(c.from), verb, tag))
	return nil
}

func TestAcksWaitForPause(t *testing.T) {
	cases := map[string]struct {
		spare int
		acked func(a *Acker)
		want  []string
	}{
		"single ack is sent immediately": {
			spare: 100,
			acked: func(a *Acker) {
				a.Settle(1, Ack)
				time.Sleep(time.Second)
				a.Settle(2, Ack)
			},
			want: []string{"0s: ack 1", "1s: ack 2"},
		},
		"acks after an ack wait for a pause": {
			spare: 100,
			acked: func(a *Acker) {
				a.Settle(1, Ack)
				synctest.Wait()
				a.Settle(2, Ack)
				a.Settle(3, Ack)
				time.Sleep(pause / 2)
				a.Settle(4, Ack)
			},
			want: []string{"0s: ack 1", "5ms: ack up to 4"},
		},
		"requeue is sent immediately": {
			spare: 100,
			acked: func(a *Acker) {
				a.Settle(1, Ack)
				synctest.Wait()
				a.Settle(2, Ack)
				a.Settle(3, NackRequeue)
			},
			want: []string{"0s: ack 1", "nack 3", "0s: ack 2"},
		},
		"half of the spare deliveries are sent immediately": {
			spare: 6,
			acked: func(a *Acker) {
				for tag := range uint64(7) {
					a.Settle(tag+1, Ack)
					synctest.Wait()
				}
			},
			want: []string{"0s: ack 1", "0s: ack up to 4", "0s: ack up to 7"},
		},
		"ack without spare deliveries is sent immediately": {
			spare: 0,
			acked: func(a *Acker) {
				a.Settle(2, Ack)
				synctest.Wait()
				a.Settle(1, Ack)
				synctest.Wait()
				a.Settle(3, Ack)
			},
			want: []string{"0s: ack 2", "0s: ack 1", "0s: ack 3"},
		},
		"ack beyond a gap waits for the gap to close": {
			spare: 100,
			acked: func(a *Acker) {
				a.Settle(1, Ack)
				a.Settle(3, Ack)
				time.Sleep(pause + pause/2)
				a.Settle(2, Ack)
			},
			want: []string{"0s: ack 1", "10ms: ack up to 3"},
		},
		"half of the spare deliveries wait for a gap to close": {
			spare: 8,
			acked: func(a *Acker) {
				for _, tag := range []uint64{1, 3, 4, 5, 6, 7, 2, 9, 10, 11, 12, 13, 14} {
					a.Settle(tag, Ack)
					synctest.Wait()
				}
			},
			want: []string{"0s: ack 1", "0s: ack up to 7", "0s: ack 9", "0s: ack 10", "0s: ack 11", "0s: ack 12", "0s: ack 13", "0s: ack 14"},
		},
		"ack beyond a gap waits for gapPauses": {
			spare: 100,
			acked: func(a *Acker) {
				a.Settle(1, Ack)
				a.Settle(3, Ack)
				time.Sleep(time.Second)
				a.Settle(2, Ack)
			},
			want: []string{"0s: ack 1", "10ms: ack 3", "1s: ack 2"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ch := &timedChannel{from: time.Now()}
				a := New(ch)
				a.SetSpare(c.spare)
				go a.Run(t.Context())
				synctest.Wait()
				c.acked(a)
				time.Sleep(time.Minute)
				a.End()
				<-a.Done()
				if !slices.Equal(c.want, ch.frames) {
					t.Errorf("got %q, want %q", ch.frames, c.want)
				}
			})
		})
	}
}

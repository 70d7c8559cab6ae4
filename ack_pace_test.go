package reprise

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// timed is a channel that notes what was settled, and when.
type timed struct {
	journal
	from time.Time
}

func (c *timed) Ack(tag uint64, multiple bool) error {
	verb := "ack"
	if multiple {
		verb = "ack up to"
	}
	c.frames = append(c.frames, fmt.Sprintf("%s: %s %d", time.Since(c.from), verb, tag))
	return nil
}

func TestAcksComeTogether(t *testing.T) {
	cases := map[string]struct {
		spare int
		acked func(a *acker)
		want  []string
	}{
		"one after a while is told at once": {
			spare: 100,
			acked: func(a *acker) {
				a.ack(1)
				time.Sleep(time.Second)
				a.ack(2)
			},
			want: []string{"0s: ack 1", "1s: ack 2"},
		},
		"those that follow wait a moment for others": {
			spare: 100,
			acked: func(a *acker) {
				a.ack(1)
				synctest.Wait()
				a.ack(2)
				a.ack(3)
				time.Sleep(ackPause / 2)
				a.ack(4)
			},
			want: []string{"0s: ack 1", "1ms: ack up to 4"},
		},
		"but not what is given back": {
			spare: 100,
			acked: func(a *acker) {
				a.ack(1)
				synctest.Wait()
				a.ack(2)
				a.giveBack(3)
			},
			want: []string{"0s: ack 1", "nack 3", "0s: ack 2"},
		},
		"but not when the broker might run out of messages to deliver": {
			spare: 6,
			acked: func(a *acker) {
				for tag := range uint64(7) {
					a.ack(tag + 1)
					synctest.Wait()
				}
			},
			want: []string{"0s: ack 1", "0s: ack up to 4", "0s: ack up to 7"},
		},
		"nor when nothing is delivered beside what is handled": {
			spare: 0,
			acked: func(a *acker) {
				a.ack(2)
				synctest.Wait()
				a.ack(1)
				synctest.Wait()
				a.ack(3)
			},
			want: []string{"0s: ack 2", "0s: ack 1", "0s: ack 3"},
		},
		"those beyond a gap wait for it to close": {
			spare: 100,
			acked: func(a *acker) {
				a.ack(1)
				a.ack(3)
				time.Sleep(4*ackPause + ackPause/2)
				a.ack(2)
			},
			want: []string{"0s: ack 1", "5ms: ack up to 3"},
		},
		"and not for long": {
			spare: 100,
			acked: func(a *acker) {
				a.ack(1)
				a.ack(3)
				time.Sleep(time.Second)
				a.ack(2)
			},
			want: []string{"0s: ack 1", "10ms: ack 3", "1s: ack 2"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ch := &timed{from: time.Now()}
				a := newAcker(ch)
				a.expect(c.spare)
				go a.run(t.Context())
				synctest.Wait()
				c.acked(a)
				time.Sleep(time.Minute)
				a.end()
				<-a.done
				if !slices.Equal(c.want, ch.frames) {
					t.Errorf("got %q, want %q", ch.frames, c.want)
				}
			})
		})
	}
}

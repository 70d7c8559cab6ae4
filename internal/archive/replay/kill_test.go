package replay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// killedProcess is a process that is killed at one of its steps: a call to the store, or the publishing of a message. After
// that its calls have no effect. The last step may have taken effect.
type killedProcess struct {
	left   int // remaining steps
	happen bool
	kill   context.CancelCauseFunc

	mu      sync.Mutex
	arrived map[string]int
}

var errKilled = errors.New("killed")

// step reports whether the next step takes effect, and whether the process receives its result.
func (l *killedProcess) step() (happens, heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left--
	if l.left == 0 {
		l.kill(errKilled)
		return l.happen, false
	}
	return l.left > 0, l.left > 0
}

func (l *killedProcess) PublishBatch(_ context.Context, messages []*reprise.Message) error {
	failed := &reprise.BatchError{Messages: len(messages)}
	for i, m := range messages {
		happens, heard := l.step()
		if happens {
			l.mu.Lock()
			l.arrived[m.MessageID]++
			l.mu.Unlock()
		}
		if !heard {
			failed.Failed = append(failed.Failed, &reprise.MessageError{Index: i, Err: reprise.ErrUnconfirmed})
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}

// If a Replayer is killed at any step, another process continues. In the end, each message is in state replayed and has
// arrived, and at most one batch of messages has arrived twice.
func TestReplayFinishesAfterKillAtAnyStep(t *testing.T) {
	const messages, batch = 12, 5
	for _, plan := range []failed.Plan{{}, {Canary: time.Minute}, {Rate: 20, Ramp: true}} {
		for _, happen := range []bool{false, true} {
			for step, survived := 1, false; !survived; step++ {
				synctest.Test(t, func(t *testing.T) {
					a := archivetest.NewMemory()
					a.Succeeds = true
					a.Fill("orders", messages)
					id := a.Begin(plan)
					arrived := map[string]int{}
					processes := 0
					for ; a.ReplayOf(id).State == failed.ReplayRunning; processes++ {
						ctx, kill := context.WithCancelCause(t.Context())
						l := &killedProcess{left: step, happen: happen, kill: kill, arrived: arrived}
						if processes == 3 {
							l.left = 1 << 30
						}
						// If the last call must have no effect, the first function makes it fail. If it must take
						// effect and its result must be lost, the second function makes it fail.
						dead := false
						a.Failing(func(string) error {
							if dead {
								return errKilled
							}
							if happens, heard := l.step(); !heard {
								dead = true
								if !happens {
									return errKilled
								}
							}
							return nil
						}, func(string) error {
							if dead {
								return errKilled
							}
							return nil
						})
						r := NewFor(l, a, Config{Batch: batch})
						_, err := r.Finish(ctx, id)
						kill(nil)
						synctest.Wait()
						if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, context.Canceled) {
							t.Fatalf("step %d: got error %v, want none, errKilled or context.Canceled", step, err)
						}
						survived = processes == 0 && err == nil && l.left > 0
						if processes > 3 {
							t.Fatalf("step %d: replay does not end: %+v", step, a.ReplayOf(id))
						}
					}
					a.Failing(nil, nil)
					if s := a.States(); s[failed.Replayed] != messages || a.ReplayOf(id).State != failed.ReplayDone || a.ReplayOf(id).Sent != messages {
						t.Fatalf("step %d: got states %v, replay %+v, want done with %d messages replayed", step, s, a.ReplayOf(id), messages)
					}
					twice := 0
					for _, n := range arrived {
						twice += n - 1
					}
					if len(arrived) != messages || twice > (processes-1)*batch {
						t.Fatalf("step %d: got %d messages and %d duplicates in %d processes, want %d messages and at most %d duplicates", step, len(arrived), twice, processes, messages, (processes-1)*batch)
					}
				})
				if t.Failed() {
					return
				}
			}
		}
	}
}

// If any call of the store fails, before or after it takes effect, a replay continues and sends each message once.
func TestReplaySurvivesStoreFailureAtAnyCall(t *testing.T) {
	for _, done := range []bool{false, true} {
		for step, broke := 1, true; broke; step++ {
			synctest.Test(t, func(t *testing.T) {
				a := archivetest.NewMemory()
				a.Succeeds = true
				a.Fill("orders", 12)
				id := a.Begin(failed.Plan{Canary: 10 * time.Second})
				broke = false
				calls := 0
				fail := func(string) error {
					if calls++; calls != step {
						return nil
					}
					broke = true
					return archivetest.ErrDown
				}
				if done {
					a.Failing(nil, fail)
				} else {
					a.Failing(fail, nil)
				}
				l := &killedProcess{left: 1 << 30, kill: func(error) {}, arrived: map[string]int{}}
				r := NewFor(l, a, Config{Batch: 5})
				replay, err := r.Finish(t.Context(), id)
				archivetest.Must(t, err)
				a.Failing(nil, nil)
				for body, n := range l.arrived {
					if n != 1 {
						t.Errorf("call %d (done: %t): message %s was sent %d times, want 1", step, done, body, n)
					}
				}
				if replay.State != failed.ReplayDone || len(l.arrived) != 12 || a.States()[failed.Replayed] != 12 {
					t.Fatalf("call %d (done: %t): got replay %+v, %d messages, states %v, want done with 12 messages replayed", step, done, replay, len(l.arrived), a.States())
				}
			})
		}
	}
}

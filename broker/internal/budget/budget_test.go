package budget

import (
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// closedConnections records why each connection was closed.
type closedConnections struct {
	mu  sync.Mutex
	why map[string]Excess
}

func (c *closedConnections) open(all *Connections, name string) *Account {
	return all.Open(func(e Excess) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, twice := c.why[name]; twice {
			panic("exceeded was called twice")
		}
		if c.why == nil {
			c.why = make(map[string]Excess)
		}
		c.why[name] = e
	})
}

func TestConnectionAboveLimitIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closedAccounts closedConnections
		all := NewConnections(100, 1000)
		greedy, other := closedAccounts.open(all, "greedy"), closedAccounts.open(all, "other")
		other.Take(Channels, 100)
		greedy.Take(Channels, 30)
		greedy.Take(Consumers, 70)
		synctest.Wait()
		if len(closedAccounts.why) > 0 {
			t.Fatalf("closed connections at the limit: %v", closedAccounts.why)
		}
		greedy.Take(Channels, 1)
		greedy.Take(Unread, 1000)
		synctest.Wait()
		if want := (Excess{Limit: 100, Used: 101, Mostly: Consumers}); len(closedAccounts.why) != 1 || closedAccounts.why["greedy"] != want {
			t.Errorf("closed connections: got %+v, want greedy for %+v", closedAccounts.why, want)
		}
		if left := greedy.Close(); left != 1101 || all.Used() != 100 {
			t.Errorf("closed account: got %d bytes left and %d used, want 1101 and 100", left, all.Used())
		}
	})
}

func TestLargestConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closedAccounts closedConnections
		all := NewConnections(1000, 100)
		small, large, last := closedAccounts.open(all, "small"), closedAccounts.open(all, "large"), closedAccounts.open(all, "last")
		small.Take(Channels, 20)
		large.Take(Queues, 45)
		last.Take(Channels, 35)
		last.Take(Channels, 1)
		// The account large no longer counts towards the limit, although its memory is still in use.
		last.Take(Channels, 2)
		synctest.Wait()
		if want := (Excess{Together: true, Limit: 100, Used: 45, Mostly: Queues}); len(closedAccounts.why) != 1 || closedAccounts.why["large"] != want {
			t.Fatalf("closed connections: got %+v, want large for %+v", closedAccounts.why, want)
		}
		small.Take(Channels, 60)
		synctest.Wait()
		if len(closedAccounts.why) != 2 || !closedAccounts.why["small"].Together {
			t.Errorf("closed connections: got %+v, want small, too", closedAccounts.why)
		}
	})
}

// After any sequence of Take and Give calls that cancel out, the used memory is zero. Each connection is closed at
// most once, and only if a limit is exceeded.
func TestBudgetWithRandomUse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			all := NewConnections(50, 100)
			var closedAccounts closedConnections
			names := []string{"a", "b", "c", "d"}
			accounts := make(map[string]*Account)
			shares := make(map[string]*Share)
			for _, n := range names {
				accounts[n] = closedAccounts.open(all, n)
				s := accounts[n].Share(Unread)
				shares[n] = &s
			}
			most := make(map[string]int64)
			for range rapid.IntRange(0, 30).Draw(rt, "steps") {
				n := rapid.SampledFrom(names).Draw(rt, "account")
				shares[n].Set(rapid.Int64Range(0, 60).Draw(rt, "bytes"))
				most[n] = max(most[n], shares[n].taken)
				synctest.Wait()
				staying := int64(0)
				for _, other := range names {
					if _, closed := closedAccounts.why[other]; closed {
						continue
					}
					staying += accounts[other].Used()
					if accounts[other].Used() > 50 {
						rt.Fatalf("open connection %s: got %d bytes, want at most 50", other, accounts[other].Used())
					}
				}
				if staying > 100 {
					rt.Fatalf("all open connections: got %d bytes, want at most 100", staying)
				}
			}
			for n, why := range closedAccounts.why {
				if !why.Together && most[n] <= 50 {
					rt.Fatalf("maximum use of closed connection %s: got %d bytes, want more than 50", n, most[n])
				}
			}
			for _, n := range names {
				shares[n].Set(0)
				if left := accounts[n].Close(); left != 0 {
					rt.Fatalf("closed account %s: got %d bytes left, want 0", n, left)
				}
			}
			if all.Used() != 0 {
				rt.Fatalf("usage without accounts: got %d bytes, want 0", all.Used())
			}
		})
	})
}

func TestLimit(t *testing.T) {
	l := NewLimit(10)
	if !l.Take(10) || l.Take(1) || l.Used() != 10 {
		t.Errorf("used bytes of 10: got %d, want 10 and no further Take", l.Used())
	}
	l.Force(5)
	l.Give(6)
	if !l.Take(1) || l.Take(1) {
		t.Errorf("used bytes of 10: got %d, want 10 and no further Take", l.Used())
	}
}

func TestNilValuesDoNotCount(t *testing.T) {
	var none *Connections
	a := none.Open(nil)
	a.Take(Channels, 1<<40)
	s := a.Share(Unread)
	s.Set(1 << 40)
	var l *Limit
	if a.Used() != 0 || none.Used() != 0 || a.Close() != 0 || a.Scarce() || !l.Take(1<<40) || l.Used() != 0 {
		t.Error("nil values count memory")
	}
}

func BenchmarkTake(b *testing.B) {
	all := NewConnections(1<<60, 1<<60)
	b.RunParallel(func(pb *testing.PB) {
		s := all.Open(nil).Share(Unread)
		for i := int64(0); pb.Next(); i++ {
			s.Set(i & 1)
		}
	})
}

// Package budget bounds the memory that clients can make the broker keep beside the messages in queues.
//
//	Connections ──┬── Account of a connection ──┬── Share: what is unread
//	              │                             ├── Share: what is unfinished
//	              │                             └── Take, Give: consumers, channels …
//	              └── Account of another
//	Limit: queues, exchanges and bindings, which outlive connections
//
// There are two ways to say no. A declaration is refused if its [Limit] has no room. A connection has an [Account], and what
// it takes is never refused, since it may be taken in the middle of something: the connection is closed instead. It is closed
// if it takes more than one may, or if all of them together take more than they may and it takes the most of them.
//
// Figures are coarse: they are within a factor of two or so of the memory they stand for. So nobody counts single deliveries,
// but the room that a list of them takes.
package budget

import (
	"sync"
	"sync/atomic"
)

// Kind is what memory is taken for.
type Kind uint8

// The kinds.
const (
	Properties Kind = iota
	Channels
	Consumers
	Queues
	Unfinished
	Uncommitted
	Unacked
	Unread
	kinds
)

// String returns the name of the kind in the plural.
func (k Kind) String() string {
	return [kinds]string{
		"client properties", "channels", "consumers", "exclusive queues", "unfinished messages",
		"uncommitted transactions", "unacknowledged deliveries", "unread frames",
	}[k]
}

// Connections is the memory that all connections may take. The nil Connections gives out accounts that count nothing.
type Connections struct {
	each, limit int64
	used        atomic.Int64

	mu       sync.Mutex
	accounts map[*Account]struct{}
	leaving  map[*Account]struct{} // those whose connection is being closed
}

// NewConnections returns a budget of which each connection may take a part, in bytes.
func NewConnections(each, limit int64) *Connections {
	return &Connections{
		each: each, limit: limit, accounts: make(map[*Account]struct{}), leaving: make(map[*Account]struct{}),
	}
}

// Used returns how much is taken.
func (c *Connections) Used() int64 {
	if c == nil {
		return 0
	}
	return c.used.Load()
}

// Limit returns how much all connections may take.
func (c *Connections) Limit() int64 { return c.limit }

// Excess says why a connection is to be closed.
type Excess struct {
	Together bool  // all connections take too much, and this one most of all
	Limit    int64 // that was exceeded
	Used     int64 // by the connection
	Mostly   Kind
}

// Open returns the account of a new connection. Exceeded is called once at the most, in a goroutine of its own, when the
// connection is to be closed.
func (c *Connections) Open(exceeded func(Excess)) *Account {
	if c == nil {
		return nil
	}
	a := &Account{all: c, exceeded: exceeded}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accounts[a] = struct{}{}
	return a
}

// check closes the connection of an account that has taken too much, and the largest ones until the others together do not.
func (c *Connections) check(a *Account) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, stays := c.accounts[a]; stays && a.Used() > c.each {
		c.close(a, Excess{Limit: c.each})
	}
	for c.staying() > c.limit && len(c.accounts) > 0 {
		largest := a
		for other := range c.accounts {
			if _, stays := c.accounts[largest]; !stays || other.Used() > largest.Used() {
				largest = other
			}
		}
		c.close(largest, Excess{Together: true, Limit: c.limit})
	}
}

// staying is what those take that are not being closed.
func (c *Connections) staying() int64 {
	n := c.used.Load()
	for a := range c.leaving {
		n -= a.Used()
	}
	return n
}

func (c *Connections) close(a *Account, e Excess) {
	delete(c.accounts, a)
	c.leaving[a] = struct{}{}
	e.Used, e.Mostly = a.Used(), a.mostly()
	a.closing.Go(func() { a.exceeded(e) })
}

// Account is what one connection takes. Its methods may be called at the same time, and under any lock. The nil Account
// counts nothing.
type Account struct {
	all      *Connections
	exceeded func(Excess)
	closing  sync.WaitGroup // the call of exceeded
	used     atomic.Int64
	byKind   [kinds]atomic.Int64
}

// Used returns how much is taken.
func (a *Account) Used() int64 {
	if a == nil {
		return 0
	}
	return a.used.Load()
}

func (a *Account) mostly() (most Kind) {
	for k := range kinds {
		if a.byKind[k].Load() > a.byKind[most].Load() {
			most = k
		}
	}
	return most
}

// Take adds memory that is taken.
func (a *Account) Take(k Kind, n int64) {
	if a == nil {
		return
	}
	a.byKind[k].Add(n)
	if used, all := a.used.Add(n), a.all.used.Add(n); n > 0 && (used > a.all.each || all > a.all.limit) {
		a.all.check(a)
	}
}

// Give takes it off again.
func (a *Account) Give(k Kind, n int64) { a.Take(k, -n) }

// Exceeds reports whether a kind takes more than a part, in percent, of what the connection may take.
func (a *Account) Exceeds(k Kind, percent int64) bool {
	return a != nil && a.byKind[k].Load() > a.all.each/100*percent
}

// Scarce reports whether more than half of what all connections may take is taken: then nobody should take what can wait.
func (a *Account) Scarce() bool { return a != nil && a.all.Used() > a.all.limit/2 }

// Close ends the account with its connection, and waits for exceeded if that has been called. It returns what was not given
// back.
func (a *Account) Close() (left int64) {
	if a == nil {
		return 0
	}
	c := a.all
	c.mu.Lock()
	delete(c.accounts, a)
	delete(c.leaving, a)
	left = a.used.Load()
	c.used.Add(-left)
	c.mu.Unlock()
	a.closing.Wait()
	return left
}

// Share is a part of an account that changes as a whole. Whoever owns it guards it. The zero Share counts nothing.
type Share struct {
	account *Account
	kind    Kind
	taken   int64
}

// Share returns an empty share of an account.
func (a *Account) Share(k Kind) Share { return Share{account: a, kind: k} }

// Set changes how much is taken.
func (s *Share) Set(n int64) {
	if n == s.taken {
		return
	}
	change := n - s.taken
	s.taken = n
	s.account.Take(s.kind, change)
}

// Exceeds is [Account.Exceeds] for all shares of this kind.
func (s *Share) Exceeds(percent int64) bool { return s.account.Exceeds(s.kind, percent) }

// Scarce is [Account.Scarce].
func (s *Share) Scarce() bool { return s.account.Scarce() }

// Add is Set with a difference.
func (s *Share) Add(n int64) { s.Set(s.taken + n) }

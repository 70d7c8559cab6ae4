// Package budget limits the memory that clients can use on the broker, not including the messages in queues.
//
//	Connections ──┬── Account of a connection ──┬── Share: unread data
//	              │                             ├── Share: unfinished messages
//	              │                             └── Take, Give: consumers, channels …
//	              └── Account of another connection
//	Limit: queues, exchanges and bindings, which outlive connections
//
// A [Limit] refuses a declaration that would exceed it. The [Account] of a connection never refuses memory, because the
// connection may be in the middle of an operation. Instead, the broker closes a connection that exceeds the limit for
// one connection. While all connections together exceed their common limit, the broker closes the connection with the
// largest account.
//
// The numbers are approximate. They are within a factor of about two of the actual memory use. For example, the budget
// counts the capacity of a list of deliveries, and not each delivery.
package budget

import (
	"sync"
	"sync/atomic"
)

// Kind is a purpose for which memory is used.
type Kind uint8

// Kinds of memory.
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

// String returns the name of the kind, as a plural noun.
func (k Kind) String() string {
	return [kinds]string{
		"client properties", "channels", "consumers", "exclusive queues", "unfinished messages",
		"uncommitted transactions", "unacknowledged deliveries", "unread frames",
	}[k]
}

// Connections is the memory budget of all connections. A nil Connections opens nil accounts, which do not count memory.
type Connections struct {
	each, limit int64
	used        atomic.Int64

	mu       sync.Mutex
	accounts map[*Account]struct{}
	closing  map[*Account]struct{} // accounts of connections that are being closed
}

// NewConnections returns a budget. The argument each is the limit for one connection, and limit is the limit for all
// connections together, in bytes.
func NewConnections(each, limit int64) *Connections {
	return &Connections{
		each: each, limit: limit, accounts: make(map[*Account]struct{}), closing: make(map[*Account]struct{}),
	}
}

// Used returns the number of used bytes.
func (c *Connections) Used() int64 {
	if c == nil {
		return 0
	}
	return c.used.Load()
}

// Limit returns the common limit for all connections, in bytes.
func (c *Connections) Limit() int64 { return c.limit }

// Excess describes why the broker must close a connection.
type Excess struct {
	Together bool  // all connections together exceed the limit, and this connection uses the most
	Limit    int64 // the exceeded limit in bytes
	Used     int64 // bytes used by the connection
	Mostly   Kind
}

// Open returns the account of a new connection. When the connection must be closed, the budget calls exceeded once,
// in a separate goroutine.
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

// check closes the connection with the account a if the account exceeds the limit for one connection. Then it closes
// the largest connections until the remaining connections are within the common limit.
func (c *Connections) check(a *Account) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, stays := c.accounts[a]; stays && a.Used() > c.each {
		c.close(a, Excess{Limit: c.each})
	}
	for c.usedByOpen() > c.limit && len(c.accounts) > 0 {
		largest := a
		for other := range c.accounts {
			if _, stays := c.accounts[largest]; !stays || other.Used() > largest.Used() {
				largest = other
			}
		}
		c.close(largest, Excess{Together: true, Limit: c.limit})
	}
}

// usedByOpen returns the memory use of the connections that are not being closed.
func (c *Connections) usedByOpen() int64 {
	n := c.used.Load()
	for a := range c.closing {
		n -= a.Used()
	}
	return n
}

func (c *Connections) close(a *Account, e Excess) {
	delete(c.accounts, a)
	c.closing[a] = struct{}{}
	e.Used, e.Mostly = a.Used(), a.largestKind()
	a.closing.Go(func() { a.exceeded(e) })
}

// Account counts the memory of a connection. It is safe for concurrent use. The caller may hold locks, except during
// Close. A nil Account does not count memory.
type Account struct {
	all      *Connections
	exceeded func(Excess)
	closing  sync.WaitGroup // waits for a running call to exceeded
	used     atomic.Int64
	byKind   [kinds]atomic.Int64
}

// Used returns the number of used bytes.
func (a *Account) Used() int64 {
	if a == nil {
		return 0
	}
	return a.used.Load()
}

func (a *Account) largestKind() (most Kind) {
	for k := range kinds {
		if a.byKind[k].Load() > a.byKind[most].Load() {
			most = k
		}
	}
	return most
}

// Take adds n bytes.
func (a *Account) Take(k Kind, n int64) {
	if a == nil {
		return
	}
	a.byKind[k].Add(n)
	if used, all := a.used.Add(n), a.all.used.Add(n); n > 0 && (used > a.all.each || all > a.all.limit) {
		a.all.check(a)
	}
}

// Give subtracts n bytes.
func (a *Account) Give(k Kind, n int64) { a.Take(k, -n) }

// Exceeds reports whether memory of kind k uses more than the given percentage of the limit for one connection.
func (a *Account) Exceeds(k Kind, percent int64) bool {
	return a != nil && a.byKind[k].Load() > a.all.each/100*percent
}

// Scarce reports whether all connections together use more than half of their common limit. If so, callers should
// defer optional memory use.
func (a *Account) Scarce() bool { return a != nil && a.all.Used() > a.all.limit/2 }

// Close closes the account, and waits for a running call to exceeded. It returns the number of bytes that the account
// still counted as used.
func (a *Account) Close() (left int64) {
	if a == nil {
		return 0
	}
	c := a.all
	c.mu.Lock()
	delete(c.accounts, a)
	delete(c.closing, a)
	left = a.used.Load()
	c.used.Add(-left)
	c.mu.Unlock()
	a.closing.Wait()
	return left
}

// Share is a part of an account. The method Set sets its total size. A Share is not safe for concurrent use. The zero
// Share does not count memory.
type Share struct {
	account *Account
	kind    Kind
	taken   int64
}

// Share returns an empty share of an account.
func (a *Account) Share(k Kind) Share { return Share{account: a, kind: k} }

// Set sets the number of used bytes to n.
func (s *Share) Set(n int64) {
	if n == s.taken {
		return
	}
	change := n - s.taken
	s.taken = n
	s.account.Take(s.kind, change)
}

// Exceeds is like [Account.Exceeds], for the kind of the share. It includes other shares of this kind.
func (s *Share) Exceeds(percent int64) bool { return s.account.Exceeds(s.kind, percent) }

// Scarce is like [Account.Scarce].
func (s *Share) Scarce() bool { return s.account.Scarce() }

// Add adds n to the number of used bytes.
func (s *Share) Add(n int64) { s.Set(s.taken + n) }

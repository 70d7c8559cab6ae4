package management

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// maxTurns is how many calls of a user may take much memory at a time: calls with a large body, those that are answered
	// with a list, and those for messages. Others wait.
	maxTurns = 2
	// smallBody is the size of a body that needs no turn.
	smallBody = 64 << 10
)

// turns bounds the calls that take much memory. Each user has turns of their own, so that nobody waits for others.
type turns struct {
	mu sync.Mutex
	of map[string]chan struct{} // by user
}

// take waits for a turn, and returns the function that ends it.
func (t *turns) take(ctx context.Context, user string) (end func(), err error) {
	t.mu.Lock()
	taken := t.of[user]
	if taken == nil {
		taken = make(chan struct{}, maxTurns)
		if t.of == nil {
			t.of = make(map[string]chan struct{})
		}
		t.of[user] = taken
	}
	t.mu.Unlock()
	select {
	case taken <- struct{}{}:
		return func() { <-taken }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// begin waits for a turn if the body is a large one.
func (c *call) begin() error {
	if c.ContentLength >= 0 && c.ContentLength <= smallBody {
		return nil
	}
	return c.takeTurn()
}

// takeTurn waits for a turn, unless the call has one. The time that the server gives an answer begins then: others have taken
// what went before.
func (c *call) takeTurn() (err error) {
	if c.done != nil {
		return nil
	}
	if c.done, err = c.h.turns.take(c.Context(), c.user.Name); err != nil {
		return err
	}
	if s, ok := c.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		_ = http.NewResponseController(c.answer).SetWriteDeadline(time.Now().Add(s.WriteTimeout)) // or the earlier one stays
	}
	return nil
}

func (c *call) end() {
	if c.done != nil {
		c.done()
	}
}

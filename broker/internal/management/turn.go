package management

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// maxTurns is the maximum number of concurrent calls per user that may need a lot of memory: calls with a large body,
	// calls that return a list, and calls that request messages. Further such calls wait.
	maxTurns = 2
	// smallBody is the maximum size of a body that does not require a turn.
	smallBody = 64 << 10
)

// turns limits the number of concurrent calls that need a lot of memory. Each user has a separate limit, so that users do
// not block each other.
type turns struct {
	mu sync.Mutex
	of map[string]chan struct{} // by user
}

// take waits for a turn and returns the function that ends the turn.
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

// begin waits for a turn if the body is large or its size is unknown.
func (c *call) begin() error {
	if c.ContentLength >= 0 && c.ContentLength <= smallBody {
		return nil
	}
	return c.takeTurn()
}

// takeTurn waits for a turn, unless the call already has a turn. After the wait, it restarts the write timeout of the
// server.
func (c *call) takeTurn() (err error) {
	if c.done != nil {
		return nil
	}
	if c.done, err = c.h.turns.take(c.Context(), c.user.Name); err != nil {
		return err
	}
	if s, ok := c.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		_ = http.NewResponseController(c.answer).SetWriteDeadline(time.Now().Add(s.WriteTimeout)) // on error, the earlier deadline remains
	}
	return nil
}

func (c *call) end() {
	if c.done != nil {
		c.done()
	}
}

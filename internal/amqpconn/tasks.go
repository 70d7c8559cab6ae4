package amqpconn

import (
	"context"
	"sync"
)

// Tasks are the goroutines of a client. The zero value is ready for use.
type Tasks struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	joined chan struct{} // nil until Close; closed when all goroutines have returned
}

// Go runs f on a goroutine. After Close it returns ErrClosed.
func (t *Tasks) Go(f func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.joined != nil {
		return ErrClosed
	}
	t.wg.Go(f)
	return nil
}

// Close waits until all goroutines have returned or ctx is canceled. From the first call on, Go returns ErrClosed. The
// first call also calls stop before it waits.
func (t *Tasks) Close(ctx context.Context, stop func()) error {
	t.mu.Lock()
	if t.joined == nil {
		t.joined = make(chan struct{})
		stop()
		go func() {
			t.wg.Wait()
			close(t.joined)
		}()
	}
	t.mu.Unlock()
	select {
	case <-t.joined:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

package queue

import (
	"testing"
	"testing/synctest"
	"time"
)

// A queue whose TTL is removed while its expiry waits for the lock of the virtual host stays, as does its consumer.
func TestRemovedQueueTTLDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := make(chan struct{})
		config := Defaults("q")
		config.Expires = time.Second
		config.Expired = func() { close(expired) }
		q := New(config)
		<-expired
		q.Apply(Defaults("q").Settings)
		if _, failed := q.Delete(Condition{Over: true}); !failed.Over {
			t.Error("the queue was deleted, although it has no TTL any more")
		}
	})
}

package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// backedUp is a store whose backup lasts until the test ends it, or somebody gives the store up.
type backedUp struct {
	store.Store // of which the rest is not called
	began, end  chan struct{}
	failed      chan struct{}
	clean       bool // closed so
}

func (b *backedUp) Backup(string) error {
	close(b.began)
	select {
	case <-b.end:
		return nil
	case <-b.failed:
		return errors.New("given up")
	}
}

func (b *backedUp) Behind() time.Duration   { return 0 }
func (b *backedUp) Failed() <-chan struct{} { return b.failed }
func (b *backedUp) GiveUp(error)            { close(b.failed) }

func (b *backedUp) Close(clean bool) error {
	b.clean = clean
	select {
	case <-b.failed:
		return errors.New("given up")
	default:
		return nil
	}
}

// closeDuringBackup closes a store while a backup is written.
func closeDuringBackup(ctx context.Context) (s *backedUp, closed, backup chan error) {
	s = &backedUp{began: make(chan struct{}), end: make(chan struct{}), failed: make(chan struct{})}
	b := &Broker{disk: disk{store: s, idle: make(chan struct{})}}
	closed, backup = make(chan error, 1), make(chan error, 1)
	go func() { backup <- b.Backup(context.Background(), "to") }()
	<-s.began
	go func() { closed <- b.disk.close(ctx, true) }()
	return s, closed, backup
}

func TestCloseWaitsForABackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, closed, backup := closeDuringBackup(context.Background())
		time.Sleep(time.Hour)
		if len(closed) > 0 {
			t.Fatal("closed while a backup is written")
		}
		close(s.end)
		if err := errors.Join(<-backup, <-closed); err != nil || !s.clean {
			t.Errorf("closed in order: %v (%v)", s.clean, err)
		}
	})
}

// A backup that hangs, on whichever disk, does not keep a broker from ending that has no time any more.
func TestCloseDoesNotWaitForABackupForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		_, closed, backup := closeDuringBackup(ctx)
		time.Sleep(time.Hour)
		cancel()
		if <-closed == nil || <-backup == nil {
			t.Error("all is well")
		}
	})
}

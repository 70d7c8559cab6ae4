package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// backupStore is a store whose Backup blocks until the test ends the backup or GiveUp is called.
type backupStore struct {
	store.Store // nil; the test calls only the methods below
	began, end  chan struct{}
	failed      chan struct{}
	clean       bool // argument of Close
}

func (b *backupStore) Backup(string) error {
	close(b.began)
	select {
	case <-b.end:
		return nil
	case <-b.failed:
		return errors.New("given up")
	}
}

func (b *backupStore) Behind() time.Duration   { return 0 }
func (b *backupStore) Failed() <-chan struct{} { return b.failed }
func (b *backupStore) GiveUp(error)            { close(b.failed) }

func (b *backupStore) Close(clean bool) error {
	b.clean = clean
	select {
	case <-b.failed:
		return errors.New("given up")
	default:
		return nil
	}
}

// closeDuringBackup starts a backup and closes the store during the backup.
func closeDuringBackup(ctx context.Context) (s *backupStore, closed, backup chan error) {
	s = &backupStore{began: make(chan struct{}), end: make(chan struct{}), failed: make(chan struct{})}
	b := &Broker{disk: disk{store: s, idle: make(chan struct{})}}
	closed, backup = make(chan error, 1), make(chan error, 1)
	go func() { backup <- b.Backup(context.Background(), "to") }()
	<-s.began
	go func() { closed <- b.disk.close(ctx, true) }()
	return s, closed, backup
}

func TestCloseWaitsForBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, closed, backup := closeDuringBackup(context.Background())
		time.Sleep(time.Hour)
		if len(closed) > 0 {
			t.Fatal("store closed during a backup")
		}
		close(s.end)
		if err := errors.Join(<-backup, <-closed); err != nil || !s.clean {
			t.Errorf("clean close: got %v, %v; want true, nil", s.clean, err)
		}
	})
}

func TestCloseAbandonsBackupAfterCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		_, closed, backup := closeDuringBackup(ctx)
		time.Sleep(time.Hour)
		cancel()
		if <-closed == nil || <-backup == nil {
			t.Error("close or backup returned no error")
		}
	})
}

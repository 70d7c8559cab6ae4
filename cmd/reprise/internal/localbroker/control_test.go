//go:build unix

package localbroker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// slowBackup is a broker with a backup that runs until end is closed.
type slowBackup struct {
	began, end chan struct{}
}

func (s *slowBackup) Backup(context.Context, string) error {
	close(s.began)
	<-s.end
	return nil
}

// A stopping broker finishes a running backup. A second signal aborts the backup.
func TestStopWaitsForBackup(t *testing.T) {
	for _, forced := range []bool{false, true} {
		dir, b, again := t.TempDir(), &slowBackup{make(chan struct{}), make(chan struct{})}, make(chan struct{})
		stop := ServeControl(b, dir, again, slog.New(slog.DiscardHandler))
		asked, stopped := make(chan error, 1), make(chan struct{})
		go func() { asked <- AskBackup(context.Background(), dir, "to") }()
		<-b.began
		go func() {
			defer close(stopped)
			stop()
		}()
		if forced {
			close(again)
		} else {
			close(b.end)
		}
		select {
		case <-stopped:
		case <-time.After(time.Minute):
			t.Fatalf("second signal %v: serveControl does not stop", forced)
		}
		if err := <-asked; (err != nil) != forced {
			t.Errorf("second signal %v: backup returned %v", forced, err)
		}
		if forced {
			close(b.end)
		}
	}
}

func TestControlSocketPathIsTooLong(t *testing.T) {
	var text bytes.Buffer
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	ServeControl(nil, dir, nil, slog.New(slog.NewTextHandler(&text, nil)))()
	if !strings.Contains(text.String(), "too long for a socket") {
		t.Errorf("log: got %s, want \"too long for a socket\"", &text)
	}
}

func TestWithoutRemovesError(t *testing.T) {
	cut, disk := context.Canceled, errors.New("disk")
	if without(nil, cut) != nil || without(cut, cut) != nil || without(errors.Join(cut), cut) != nil {
		t.Error("without did not remove the error")
	}
	if err := without(errors.Join(cut, disk), cut); !errors.Is(err, disk) || errors.Is(err, cut) {
		t.Errorf("without returned %v", err)
	}
}

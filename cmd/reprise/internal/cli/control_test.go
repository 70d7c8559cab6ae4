//go:build unix

package cli

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
func TestStopDuringABackup(t *testing.T) {
	for _, inAHurry := range []bool{false, true} {
		dir, b, again := t.TempDir(), &slowBackup{make(chan struct{}), make(chan struct{})}, make(chan struct{})
		stop := serveControl(b, dir, again, slog.New(slog.DiscardHandler))
		asked, stopped := make(chan error, 1), make(chan struct{})
		go func() { asked <- askBackup(context.Background(), dir, "to") }()
		<-b.began
		go func() {
			defer close(stopped)
			stop()
		}()
		if inAHurry {
			close(again)
		} else {
			close(b.end)
		}
		select {
		case <-stopped:
		case <-time.After(timeout):
			t.Fatalf("in a hurry: %v: it does not end", inAHurry)
		}
		if err := <-asked; (err != nil) != inAHurry {
			t.Errorf("in a hurry: %v: the backup came to %v", inAHurry, err)
		}
		if inAHurry {
			close(b.end)
		}
	}
}

func TestAPathTooLongForASocket(t *testing.T) {
	var text bytes.Buffer
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	serveControl(nil, dir, nil, slog.New(slog.NewTextHandler(&text, nil)))()
	if !strings.Contains(text.String(), "too long for a socket") {
		t.Errorf("it says %s", &text)
	}
	if err := (&backupCmd{Data: dir}).unanswered(); !strings.Contains(err.Error(), "the path of its socket is too long") {
		t.Errorf("the client is told %v", err)
	}
	if err := (&backupCmd{Data: "short"}).unanswered(); !strings.Contains(err.Error(), "another process uses it and has no control socket") {
		t.Errorf("the client is told %v", err)
	}
}

func TestWithout(t *testing.T) {
	cut, disk := context.Canceled, errors.New("disk")
	if without(nil, cut) != nil || without(cut, cut) != nil || without(errors.Join(cut), cut) != nil {
		t.Error("something is left")
	}
	if err := without(errors.Join(cut, disk), cut); !errors.Is(err, disk) || errors.Is(err, cut) {
		t.Errorf("%v is left", err)
	}
}

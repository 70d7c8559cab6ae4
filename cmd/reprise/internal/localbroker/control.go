package localbroker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/internal/brief"
)

// controlFile is the name of a broker's control socket in its data directory. Only the user of the broker's process and
// root can use the socket. It serves HTTP:
//
//	POST /backup {"to": "/absolute/path"}
const controlFile = "control.sock"

type backupRequest struct {
	To string `json:"to"`
}

// ControlPath returns the path of the socket in a data directory. The result possible reports whether the path is
// short enough for a socket.
func ControlPath(dir string) (path string, possible bool) {
	const longest = len(syscall.RawSockaddrUnix{}.Path) - 1 // a terminating zero follows
	path = filepath.Join(dir, controlFile)
	return path, len(path) <= longest
}

// backuper is implemented by [broker.Broker].
type backuper interface {
	Backup(ctx context.Context, dir string) error
}

// ServeControl serves the socket until stop is called. Errors are logged, because the broker also works without the
// socket.
func ServeControl(b backuper, dir string, again <-chan struct{}, log *slog.Logger) (stop func()) {
	path, possible := ControlPath(dir)
	err := errors.New("path is too long for a socket (use a data directory with a shorter path)")
	var l net.Listener
	if possible {
		_ = os.Remove(path) // left by a crashed process, because no other process can own the directory now
		if l, err = net.Listen("unix", path); err == nil {
			err = os.Chmod(path, 0o600)
		}
	}
	if err != nil {
		log.Warn("cannot serve the control socket: `reprise broker backup` will not work while this broker runs", "path", path, "error", err)
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) {
		var request backupRequest
		err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&request)
		if err == nil && !filepath.IsAbs(request.To) {
			err = fmt.Errorf("path must be absolute: got %s", brief.Quoted(request.To))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := b.Backup(r.Context(), request.To); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		log.Info("backup written", "path", request.To)
	})
	end := serve.Socket(l, mux, log)
	return func() {
		// Finish a running backup first, unless a second signal forces the stop.
		ctx, cancel := serve.Until(again)
		defer cancel()
		end(ctx)
	}
}

// ErrNoBroker means that no broker responds on the control socket.
var ErrNoBroker = errors.New("no broker responds")

// AskBackup makes the broker of a data directory write a backup.
func AskBackup(ctx context.Context, dir, to string) error {
	body, err := json.Marshal(backupRequest{Absolute(to)})
	if err != nil {
		return err
	}
	path, _ := ControlPath(dir)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://control/backup", bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := serve.SocketClient(path).Do(r)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("%w: %w", ErrNoBroker, op)
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err != nil {
		return err
	}
	return errors.New(strings.TrimSpace(string(text)))
}

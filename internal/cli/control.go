package cli

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
	"time"

	"github.com/reprisemq/reprise/broker"
)

// controlFile is the socket in a data directory at which the broker that runs on it can be spoken to, by whoever may read
// the data anyway. It speaks HTTP:
//
//	POST /backup {"to": "/absolute/path"}
const controlFile = "control.sock"

type backupRequest struct {
	To string `json:"to"`
}

// serveControl serves the socket until the function it returns is called. A broker runs as well without one.
func serveControl(b *broker.Broker, dir string, log *slog.Logger) (stop func()) {
	path := filepath.Join(dir, controlFile)
	_ = os.Remove(path) // of a process that died: no other has the directory now
	l, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		log.Warn("no control socket: `reprise broker backup` will not work while this broker runs", "error", err)
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) {
		var request backupRequest
		err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&request)
		if err == nil && !filepath.IsAbs(request.To) {
			err = errors.New("the path is not absolute")
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
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until Close; it removes the socket
	}()
	return func() {
		_ = server.Shutdown(context.Background()) // a backup that is being written is finished first
		<-done
	}
}

// errNobody says that no broker answers at a socket.
var errNobody = errors.New("no broker answers")

// askBackup has the broker that runs on a data directory write a backup.
func askBackup(ctx context.Context, dir, to string) error {
	body, err := json.Marshal(backupRequest{absolute(to)})
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, controlFile))
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errNobody, err)
			}
			return conn, nil
		},
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://control/backup", bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
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

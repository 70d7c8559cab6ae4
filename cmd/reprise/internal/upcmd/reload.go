package upcmd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/localbroker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/design"
)

// Reload is reprise reload.
type Reload struct {
	Config []string `short:"c" sep:"none" default:"reprise.yaml" placeholder:"FILE" help:"Configuration file, or directory of such files. Repeatable. Default ${default}."`
	JSON   bool     `help:"Print JSON."`
}

// Help implements kong.HelpProvider.
func (Reload) Help() string {
	return `Makes the running processes of "reprise up" with the same -c, on this machine and of the same user, read their
configuration again. A process replaces the workers whose section differs, also because of a file or a variable to which
it refers, adds new workers, and removes others. Other workers continue. A worker stops after its running handlers have
finished, whatever time they need, so no message is lost or handled twice. Changes of cron: apply at once.

If the configuration is invalid, or changes more than workers, exchanges and cron, the process changes nothing. Environment
variables keep the values of the start of the process, but ${file:PATH} is read again. A process replaces the programs of
process: also if a file in their command, such as a script, has another time or size; touch the script after changes of
the modules that it loads. With an archive, restart after you have added workers: until then, their failed messages stay
in their failed queues.

The signal SIGHUP does the same; the log has the result. Exit codes: 0 done, 1 no process or not applied, 2 invalid
configuration.
`
}

// reloaded is the answer of a process.
type reloaded struct {
	PID int `json:"pid"`
	changes
	Unarchived []string `json:"unarchived,omitempty"` // failed queues that the archive takes only after a restart
	Error      string   `json:"error,omitempty"`
	Invalid    bool     `json:"invalid,omitempty"` // the configuration is invalid
}

// Run makes all processes of a configuration reload it.
func (c *Reload) Run(ctx context.Context, streams terminal.IO) error {
	if slices.Contains(c.Config, "-") {
		return exit.Usagef("a process that has read its configuration from standard input cannot read it again")
	}
	dir, err := socketDir()
	if err != nil {
		return err
	}
	sockets, err := filepath.Glob(filepath.Join(dir, socketName(c.Config, "*")))
	if err != nil {
		return err
	}
	var all []reloaded
	for _, path := range sockets {
		slow := time.AfterFunc(slowReload, func() {
			fmt.Fprintf(streams.Stderr, "process %s has not finished yet; a worker that changes waits for its running handlers (its log names the queues)\n", pidOf(path))
		})
		answer, err := askReload(ctx, path)
		slow.Stop()
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; process %s continues to reload", pidOf(path))
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path) // left by a killed process
			continue
		}
		if err != nil {
			return fmt.Errorf("process %s: %w", pidOf(path), err)
		}
		all = append(all, answer)
	}
	if len(all) == 0 {
		return fmt.Errorf("no process of reprise up with -c %s runs on this machine as this user (start it, or use systemctl reload)", strings.Join(c.Config, " -c "))
	}
	return c.print(streams, all)
}

// slowReload is the time after which a command tells why it waits.
const slowReload = 3 * time.Second

func (c *Reload) print(streams terminal.IO, all []reloaded) error {
	var result error
	for _, r := range all {
		text := fmt.Sprintf("process %d: %s\n", r.PID, r.changes)
		if len(r.Unarchived) > 0 {
			text += fmt.Sprintf("process %d: restart it, so that its archive takes %s\n", r.PID, strings.Join(r.Unarchived, ", "))
		}
		switch {
		case r.Invalid:
			result, text = exit.Usage(exit.ErrPrinted), fmt.Sprintf("process %d has changed nothing:\n%s\n", r.PID, r.Error)
		case r.Error != "":
			result, text = cmp.Or(result, exit.ErrPrinted), fmt.Sprintf("process %d has changed nothing: %s\n", r.PID, r.Error)
		}
		if err := streams.Result(c.JSON, r, text); err != nil {
			return err
		}
	}
	return result
}

// reloader reloads the configuration of this process.
type reloader struct {
	paths    []string
	crew     *crew
	archived []string // failed queues that the archive takes
	log      *slog.Logger

	turn sync.Mutex // held while files are read, too: the last of several reloads must not apply an earlier content
}

// serve reloads on SIGHUP and on requests, until ctx is canceled.
func (r *reloader) serve(ctx context.Context, hangup <-chan struct{}) {
	stop := r.listen(ctx)
	defer stop()
	for {
		select {
		case <-hangup:
			go r.reload(ctx) // can wait for a handler longer than a stop
		case <-ctx.Done():
			return
		}
	}
}

func (r *reloader) reload(ctx context.Context) reloaded {
	r.turn.Lock()
	defer r.turn.Unlock()
	result := reloaded{PID: os.Getpid()}
	cfg, err := r.load()
	if result.Invalid = err != nil; err == nil {
		result.changes, err = r.crew.reload(ctx, cfg)
		_, result.Invalid = errors.AsType[*config.Problems](err)
	}
	if err != nil {
		result.Error = exit.Text(err)
		r.log.Error("configuration not reloaded, nothing has changed", "error", err)
		return result
	}
	r.log.Info("configuration reloaded", "changes", result.changes.String())
	if result.Unarchived = r.unarchived(cfg); len(result.Unarchived) > 0 {
		r.log.Warn("the archive takes these failed queues after a restart; until then, the failed messages stay there", "queues", result.Unarchived)
	}
	return result
}

// unarchived returns the failed queues of a configuration that the archive, if any, has not known since the start.
func (r *reloader) unarchived(cfg *config.Config) []string {
	if cfg.Archive == nil {
		return nil
	}
	return slices.DeleteFunc(design.FailedQueues(cfg.WorkerConfigs()), func(queue string) bool { return slices.Contains(r.archived, queue) })
}

func newReloader(paths []string, cfg *config.Config, crew *crew, log *slog.Logger) *reloader {
	r := &reloader{paths: paths, crew: crew, log: log}
	if cfg.Archive != nil {
		r.archived = slices.Concat(cfg.Archive.Queues, r.unarchived(cfg))
	}
	return r
}

func (r *reloader) load() (*config.Config, error) {
	if slices.Contains(r.paths, "-") {
		return nil, errors.New("the configuration was read from standard input, which cannot be read again")
	}
	return config.Load(r.paths...)
}

// listen serves requests of reprise reload. Errors are logged, because SIGHUP also works without the socket.
func (r *reloader) listen(ctx context.Context) (stop func()) {
	dir, err := socketDir()
	var l net.Listener
	path := ""
	if err == nil {
		path = filepath.Join(dir, socketName(r.paths, strconv.Itoa(os.Getpid())))
		_ = os.Remove(path) // left by a killed process with this number
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		r.log.Warn("cannot serve reprise reload (SIGHUP works)", "error", err)
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.reload(ctx)) // the client may have disconnected
	})
	end := serve.Socket(l, mux, r.log)
	return func() { end(ctx) } // ctx is done, and a reload can last longer than a stop
}

// socketName returns the name of the socket of a process with a configuration.
func socketName(paths []string, pid string) string {
	h := sha256.New()
	for _, path := range paths {
		fmt.Fprintln(h, localbroker.Absolute(path))
	}
	return fmt.Sprintf("%x.%s.sock", h.Sum(nil)[:8], pid)
}

func pidOf(socket string) string {
	parts := strings.Split(filepath.Base(socket), ".")
	return parts[len(parts)-2]
}

// socketDir returns a directory to which only this user has access.
func socketDir() (string, error) {
	dir := filepath.Join(cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()), fmt.Sprintf("reprise-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || info.Mode().Perm() != 0o700 || !ownedByUser(info) {
		return "", fmt.Errorf("%s must be a directory of this user with mode 0700 (remove it)", dir)
	}
	return dir, nil
}

// askReload makes the process that serves a socket reload its configuration. It waits until the process has done so.
func askReload(ctx context.Context, socket string) (answer reloaded, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://process/reload", nil)
	if err != nil {
		return answer, err
	}
	response, err := serve.SocketClient(socket).Do(r)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	err = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&answer)
	return answer, err
}

package migrate

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/retry"
)

const maxConnections = "max-connections"

// limit returns the limit of connections of the virtual host, or "none".
func (b broker) limit(ctx context.Context) (string, error) {
	var found []struct {
		Value map[string]int64 `json:"value"`
	}
	if err := b.get(ctx, "vhost-limits"+b.api.Within(), &found); err != nil {
		return "", err
	}
	for _, one := range found {
		if n, ok := one.Value[maxConnections]; ok {
			return strconv.FormatInt(n, 10), nil
		}
	}
	return "none", nil
}

func (b broker) setLimit(ctx context.Context, limit string) error {
	path := b.path("vhost-limits", maxConnections)
	n, err := strconv.ParseInt(limit, 10, 64)
	if err != nil {
		return b.api.Delete(ctx, path)
	}
	return b.api.Put(ctx, path, map[string]int64{"value": n})
}

// pause disconnects all other programs, and refuses new connections. The journal has the limit that resume restores. First
// it waits until the management API lists all connections, and calls meanwhile repeatedly.
func (r *run) pause(ctx context.Context, meanwhile func() error) error {
	if _, err := r.broker.recover(ctx, r.record.Queue); err != nil {
		return err
	}
	limit, err := r.broker.limit(ctx)
	if err != nil {
		return err
	}
	// The operator may have changed the limit after an interrupted run.
	for _, entry := range slices.Clone(r.journal) {
		if strings.HasPrefix(entry, "limit/") && entry != "limit/"+limit {
			if err := r.unlog(ctx, entry); err != nil {
				return err
			}
		}
	}
	if err := r.log(ctx, "limit/"+limit); err != nil {
		return err
	}
	r.step("refuse new connections to the virtual host, until the management API lists all connections")
	r.paused = time.Now() // a request that fails may have set the limit, which resume removes
	if err := r.broker.setLimit(ctx, "0"); err != nil {
		return fmt.Errorf("cannot limit the connections of the virtual host: %w", err)
	}
	listed := r.since(1)
	defer func() { listed.end(r) }()
	for current := false; !current; {
		if err := meanwhile(); err != nil {
			return err
		}
		if current, err = listed.current(ctx, r); err != nil {
			return err
		}
		if err := retry.Sleep(ctx, poll); err != nil {
			return err
		}
	}
	r.paused = time.Now() // until now, connections were open
	r.step("close all other connections")
	for quiet := 0; quiet < 3; {
		others, err := r.others(ctx)
		if err != nil {
			return err
		}
		for _, name := range others {
			if err := r.broker.api.Delete(ctx, "connections/"+url.PathEscape(name)); err != nil {
				return fmt.Errorf("cannot close connection %q: %w", name, err)
			}
		}
		if quiet++; len(others) > 0 {
			quiet = 0
		}
		if err := retry.Sleep(ctx, poll/10); err != nil {
			return err
		}
	}
	return nil
}

// others returns the connections of other programs.
func (r *run) others(ctx context.Context) (names []string, err error) {
	return Others(ctx, r.cfg.API, r.cfg.Name)
}

// Others returns the connections to a virtual host, except those of the client with a name (see reprise.Config).
func Others(ctx context.Context, api mgmtapi.API, name string) (names []string, err error) {
	var found []struct {
		Name       string                `json:"name"`
		Given      mgmtapi.Field[string] `json:"user_provided_name"`
		Properties mgmtapi.Field[struct {
			Name string `json:"connection_name"`
		}] `json:"client_properties"`
	}
	err = broker{api}.get(ctx, "vhosts"+api.Within()+"/connections", &found)
	for _, c := range found {
		if !strings.HasPrefix(c.Given.Value, name+" ") && !strings.HasPrefix(c.Properties.Value.Name, name+" ") {
			names = append(names, c.Name)
		}
	}
	return names, err
}

// resumeTimeout is the time for which resume tries to permit connections.
var resumeTimeout = mgmtapi.Timeout

// resume permits connections again, also if ctx of the run is done.
func (r *run) resume() error {
	if r.paused.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resumeTimeout)
	defer cancel()
	for {
		_, err := r.broker.recover(ctx, r.record.Queue)
		if err == nil {
			break
		}
		if retry.Sleep(ctx, poll) != nil {
			return fmt.Errorf("cannot remove the limit of connections of the virtual host, so programs cannot connect (run the command again): %w", err)
		}
	}
	r.step("permit connections to the virtual host")
	r.result.Paused += time.Since(r.paused)
	r.paused = time.Time{}
	for _, entry := range r.journal {
		if strings.HasPrefix(entry, "limit/") {
			_ = r.unlog(ctx, entry) // after a lost connection, the next run reads the entry again
			break
		}
	}
	return nil
}

// Recover permits connections again if a migration of the queue was interrupted while other programs were disconnected. Call it
// before connecting. It reports whether it has changed the limit. It returns ErrRunning if the migration is not interrupted: the
// limit protects the messages that programs would publish while the queue does not exist.
func Recover(ctx context.Context, api mgmtapi.API, queue string) (recovered bool, err error) {
	b := broker{api}
	lock, err := b.queue(ctx, RecordPrefix+queue)
	if err != nil {
		return false, err
	}
	if lock.Found {
		return false, ErrRunning
	}
	return b.recover(ctx, queue)
}

func (b broker) recover(ctx context.Context, queue string) (recovered bool, err error) {
	now, err := b.limit(ctx)
	if err != nil || now != "0" {
		return false, err
	}
	j, err := b.journal(ctx, record{Queue: queue})
	if err != nil {
		return false, err
	}
	for _, entry := range j {
		if limit, found := strings.CutPrefix(entry, "limit/"); found {
			return true, b.setLimit(ctx, limit)
		}
	}
	return false, nil
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/archive/notification"
)

// checkURL returns an error if the path of the console's URL differs from the prefix.
func (c archiveServiceConfig) checkURL() error {
	prefix := strings.TrimSuffix(c.console.Prefix, "/")
	if u, err := url.Parse(c.url); c.url != "" && (err != nil || strings.TrimSuffix(u.Path, "/") != prefix) {
		return fmt.Errorf("the path of the console's url must be its prefix %q: got %s", prefix, c.url)
	}
	return nil
}

// linkWarning describes notifications whose links work only on this machine, or on no machine.
func (d *archiveService) linkWarning() string {
	switch {
	case d == nil || d.notify == nil || d.url != "":
		return ""
	case d.listen == "":
		return "notifications have no links without a console (set console, and its key url)"
	}
	return fmt.Sprintf("links in notifications begin with http://%s, the address of the console's listener (set console.url to the address for browsers)", d.listen)
}

// startNotifier sends notifications, if they are configured, until stop is called.
func (d *archiveService) startNotifier(ctx context.Context) (stop func()) {
	if d.notify == nil {
		return func() {}
	}
	n := notification.New(notification.Config{
		DB: d.db.DB, Dialect: d.db.dialect, Webhooks: d.notify.Webhooks, Console: cmp.Or(d.url, d.localURL),
		Read: d.read, Gather: d.notify.Gather, Cooldown: d.notify.Cooldown, Growth: d.notify.Growth,
		Logger: d.log, Sent: d.notified,
	})
	d.notifier.Store(n)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		d.db.private()
		n.Run(ctx)
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// read returns the current state for notifications.
func (d *archiveService) read(ctx context.Context) (*notification.Reading, error) {
	archive := d.opened.Load()
	if archive == nil {
		return nil, errNotOpen
	}
	return notification.Read(ctx, archive, d.ledger.Load())
}

// report sends a notification about an event that readings do not contain.
func (d *archiveService) report(kind notification.Kind, subject, title, detail string) {
	if n := d.notifier.Load(); n != nil {
		n.Report(kind, subject, title, detail)
	}
}

// reportStore returns a function that reports an unavailable database.
func (d *archiveService) reportStore(kind string) func(error) {
	return func(err error) {
		d.report(notification.StoreUnavailable, "store/"+kind, fmt.Sprintf("The %s is unavailable", kind), d.db.name+": "+wrongWithStore(err))
	}
}

// readAuthorities reads the files of the webhooks' authorities.
func readAuthorities(n *config.Notify) error {
	for i := range n.Webhooks {
		if err := n.Webhooks[i].ReadFile(); err != nil {
			return fmt.Errorf("webhook %s: %w", n.Webhooks[i].Name(), err)
		}
	}
	return nil
}

// notifyOf returns an observer that also sends notifications about worker events.
func (d *archiveService) notifyOf(next reprise.Observer) reprise.Observer {
	if d == nil || d.notify == nil {
		return next
	}
	return reprise.ObserverFunc(func(e reprise.Event) {
		d.reportWorker(e)
		next.Observe(e)
	})
}

func (d *archiveService) reportWorker(e reprise.Event) {
	switch e.Kind {
	case reprise.EventTimeoutNear:
		d.report(notification.TimeoutNear, "queue/"+e.Queue, "A handler of "+e.Queue+" takes nearly as long as its consumer timeout",
			"held for "+e.Took.Round(time.Second).String())
	case reprise.EventPaused:
		for _, w := range d.console.Workers {
			if w.Queue == e.Queue && w.Breaker != nil && w.Breaker() == string(breaker.Open) {
				d.report(notification.BreakerOpen, "queue/"+e.Queue, "The circuit breaker of "+e.Queue+" is open", "")
			}
		}
	}
}

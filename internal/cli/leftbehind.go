package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/store"
	"github.com/reprisemq/reprise/internal/vhost"
)

// maxLeftQueues is the number of queues that leftBehind names.
const maxLeftQueues = 20

// leftBehind says which messages the embedded broker of a configuration has kept, if
// the configuration names another broker now; "" means none.
func leftBehind(file string, cfg *config.Config) string {
	dir := absolute(filepath.Join(filepath.Dir(file), config.DefaultData))
	if cfg.Broker == "" {
		return ""
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	queues, err := survey(dir)
	switch {
	case errors.Is(err, broker.ErrInUse):
		return fmt.Sprintf("another process uses %s, so that its messages cannot be counted; broker: does not use them", dir)
	case err != nil:
		return fmt.Sprintf("cannot read whether the embedded broker has left messages in %s: %v", dir, err)
	}
	queues = slices.DeleteFunc(queues, func(q vhost.Surveyed) bool { return q.Messages == 0 })
	if len(queues) == 0 {
		return ""
	}
	slices.SortStableFunc(queues, func(a, b vhost.Surveyed) int { return cmp.Compare(b.Messages, a.Messages) })
	messages := 0
	var names []string
	for i, q := range queues {
		messages += q.Messages
		if i < maxLeftQueues {
			names = append(names, fmt.Sprintf("%s: %d", q.Name, q.Messages))
		}
	}
	if more := len(queues) - maxLeftQueues; more > 0 {
		names = append(names, fmt.Sprintf("%d more queues", more))
	}
	return fmt.Sprintf("the embedded broker has left %s in %s (%s), and broker: does not use them: "+
		"run a copy of this file without broker: as well, until its workers have handled them, see \"Moving to RabbitMQ\" in docs/cli.md",
		plural(messages, "message"), dir, strings.Join(names, ", "))
}

// survey returns the queues in a data directory, which stays as it is.
func survey(dir string) ([]vhost.Surveyed, error) {
	s, err := store.Open(store.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	queues, err := vhost.Survey(s)
	return queues, errors.Join(err, s.Close(!s.Unclean()))
}

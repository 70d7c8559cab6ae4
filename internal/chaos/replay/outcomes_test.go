package replay

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
)

var seed = flag.Uint64("replay.seed", 1, "seed of the kills")

// replays is the number of concurrent replays. outcomeKills is the number of processes that are killed during the replays.
const (
	replays      = 10
	outcomeKills = 12
)

// TestKilledProcessesKeepOutcomes replays ten groups at the same time. It kills the broker, the worker, and the process
// that replays and archives. Each message has exactly one outcome, which agrees with the results that the worker records in
// a file:
//
//   - succeeded only if the handler has returned nil;
//   - failed again only if the handler has refused the message;
//   - pending or retrying only if the worker has recorded that it could not report the result.
func TestKilledProcessesKeepOutcomes(t *testing.T) {
	t.Parallel()
	each := max(*messages/replays, 10)
	h := newSystem(t)
	for group := range replays {
		var all []failed.Message
		for i := range each {
			all = append(all, failed.Message{
				Queue: workQueue, FailedQueue: failedQueue, Attempts: 10,
				Error:   "cause " + string(rune('a'+group)),
				Content: failed.Content{Properties: failed.Properties{MessageID: fmt.Sprintf("%d/%d", group, i)}},
			})
		}
		for batch := range slices.Chunk(all, 1000) {
			if _, err := h.archive.Add(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	var ids []failed.ReplayID
	for group := range replays {
		r, err := h.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{Group: failed.GroupID(group + 1)}}, "test")
		if err != nil || r.Total != int64(each) {
			t.Fatalf("replay: got %+v, %v; want %d messages", r, err, each)
		}
		ids = append(ids, r.ID)
	}
	h.killAtRandom(func() (known int64) {
		for _, id := range ids {
			r := h.replay(id)
			known += r.Succeeded + r.Back
		}
		return known
	}, int64(replays*each))

	// A message may lack a final outcome only if the worker could not report the outcome.
	var notes notes
	testkit.Eventually(t, timeout, func() bool {
		notes = h.notes()
		for _, id := range ids {
			if r := h.replay(id); r.State != failed.ReplayDone || r.Sent != r.Total {
				return false
			}
			for m := range h.with(id, failed.OutcomePending, failed.OutcomeRetrying) {
				if !notes.unreported[m] {
					return false
				}
			}
		}
		return true
	})
	counts := map[failed.Outcome]int{}
	for _, id := range ids {
		seen := map[string]failed.Outcome{}
		for _, outcome := range failed.Outcomes() {
			for m := range h.with(id, outcome) {
				if before, twice := seen[m]; twice {
					t.Errorf("replay %d: message %s has the outcomes %q and %q", id, m, before, outcome)
				}
				seen[m] = outcome
				counts[outcome]++
				switch {
				case outcome == failed.OutcomeSucceeded && !notes.succeeded[m]:
					t.Errorf("replay %d: message %s: got outcome succeeded, but the handler did not return nil", id, m)
				case outcome == failed.OutcomeFailedAgain && !notes.refused[m]:
					t.Errorf("replay %d: message %s: got outcome failed again, but the handler did not refuse it", id, m)
				}
			}
		}
		if len(seen) != each {
			t.Errorf("replay %d: messages with an outcome: got %d, want %d", id, len(seen), each)
		}
		r := h.replay(id)
		if int(r.Succeeded+r.Back+r.Retrying+r.Unknown+r.Pending()) != each {
			t.Errorf("replay %d: sum of the counts must be %d: got %+v", id, each, r)
		}
	}
	t.Logf("outcomes: %v; unconfirmed reports: %d", counts, len(notes.unreported))
}

// system contains the processes: a broker with a disk, a worker, and a service that replays and archives.
type system struct {
	*testing.T
	archive     *store.Archive
	log         string // file with the records of the worker
	environment []string
	running     map[string]*process
}

func newSystem(t *testing.T) *system {
	t.Helper()
	dir := t.TempDir()
	h := &system{T: t, log: filepath.Join(dir, "notes"), running: map[string]*process{}}
	file := filepath.Join(dir, "failed.db")
	db, archive, err := openArchive(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	h.archive = archive
	h.environment = []string{
		archiveVariable + "=" + file, notesVariable + "=" + h.log,
		addressVariable + "=" + freeAddress(t), dataVariable + "=" + filepath.Join(dir, "data"),
	}
	url := h.start("broker")
	h.environment = append(h.environment, brokerVariable+"="+url)
	h.start("worker")
	h.start("service")
	return h
}

// freeAddress returns an address with a free port, so that a broker can have the same address after a restart.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (h *system) start(role string) (firstLine string) {
	h.Helper()
	p := start(h.T, role, h.environment...)
	h.running[role] = p
	return p.firstLine
}

// killAtRandom kills and restarts a random process each time that a further fraction of the outcomes is known.
func (h *system) killAtRandom(known func() int64, total int64) {
	h.Helper()
	draw := rand.New(rand.NewPCG(*seed, 0))
	for n := range outcomeKills {
		goal := total * 8 / 10 * int64(n+1) / (outcomeKills + 1)
		testkit.Eventually(h.T, timeout, func() bool { return known() >= goal })
		role := slices.Sorted(maps.Keys(h.running))[draw.IntN(len(h.running))]
		h.running[role].kill()
		h.Logf("killed %s with %d of %d outcomes known", role, known(), total)
		h.start(role)
	}
}

func (h *system) replay(id failed.ReplayID) *failed.Replay {
	h.Helper()
	r, err := h.archive.Replay(h.Context(), id)
	if err != nil {
		h.Fatal(err)
	}
	return r
}

// with returns the IDs of those messages of a replay that have one of the given outcomes.
func (h *system) with(id failed.ReplayID, outcomes ...failed.Outcome) map[string]bool {
	h.Helper()
	found := map[string]bool{}
	for _, outcome := range outcomes {
		for m, err := range h.archive.Each(h.Context(), failed.Filter{SentBy: id, Outcome: outcome}) {
			if err != nil {
				h.Fatal(err)
			}
			found[m.Properties.MessageID] = true
		}
	}
	return found
}

// notes contains the message IDs in the records of the worker, by result.
type notes struct{ succeeded, refused, unreported map[string]bool }

func (h *system) notes() notes {
	h.Helper()
	n := notes{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	file, err := os.Open(h.log)
	if errors.Is(err, os.ErrNotExist) {
		return n
	}
	if err != nil {
		h.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		verb, message, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case noteSucceeded:
			n.succeeded[message] = true
		case noteRefused:
			n.refused[message] = true
		case noteUnreported:
			n.unreported[message] = true
		}
	}
	if err := lines.Err(); err != nil {
		h.Fatal(err)
	}
	return n
}

// serviceRole archives failed messages and executes replays until it is killed.
func serviceRole(ctx context.Context) error {
	a, c, err := open(ctx)
	if err != nil {
		return err
	}
	r := replay.New(c, a, replay.Config{Lease: lease})
	ended := make(chan error, 2)
	go func() { ended <- take(ctx, a, c) }()
	go func() { ended <- r.Run(ctx) }()
	return <-ended
}

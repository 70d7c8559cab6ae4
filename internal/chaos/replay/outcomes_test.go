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

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/testkit"
)

var seed = flag.Uint64("replay.seed", 1, "which processes are killed, and when, while replays are verified")

// replays is the number of concurrent replays. outcomeKills is the number of processes that are killed during the replays.
const (
	replays      = 10
	outcomeKills = 12
)

// TestOutcomesWhenProcessesAreKilled replays ten groups at the same time and kills the broker, the worker, and the process that
// replays and archives. Each message ends in exactly one outcome, which equals the result that the worker has recorded in a file:
//
//   - succeeded only if its handler has returned nil;
//   - failed again only if it is in the archive once more;
//   - no outcome only if the worker has recorded that it could not report.
func TestOutcomesWhenProcessesAreKilled(t *testing.T) {
	t.Parallel()
	each := max(*messages/replays, 10)
	h := newHouse(t)
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
			t.Fatalf("%+v, %v", r, err)
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

	// At the end, the worker could not report the messages without an outcome.
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
					t.Errorf("replay %d: message %s is %q and %q", id, m, before, outcome)
				}
				seen[m] = outcome
				counts[outcome]++
				switch {
				case outcome == failed.OutcomeSucceeded && !notes.succeeded[m]:
					t.Errorf("replay %d: message %s is reported as succeeded, and its handler did not return nil", id, m)
				case outcome == failed.OutcomeFailedAgain && !notes.refused[m]:
					t.Errorf("replay %d: message %s failed again, and its handler did not refuse it", id, m)
				}
			}
		}
		if len(seen) != each {
			t.Errorf("replay %d: %d of %d messages have an outcome", id, len(seen), each)
		}
		r := h.replay(id)
		if int(r.Succeeded+r.Back+r.Retrying+r.Unknown+r.Pending()) != each {
			t.Errorf("replay %d: its figures do not add up: %+v", id, r)
		}
	}
	t.Logf("%v; %d reports were not confirmed", counts, len(notes.unreported))
}

// house contains a broker with a disk, a worker, and a process that replays and archives.
type house struct {
	*testing.T
	archive     *failed.Archive
	log         string // the notes of the worker
	environment []string
	running     map[string]*process
}

func newHouse(t *testing.T) *house {
	t.Helper()
	dir := t.TempDir()
	h := &house{T: t, log: filepath.Join(dir, "notes"), running: map[string]*process{}}
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
	h.start("desk")
	return h
}

// freeAddress returns an address that a broker can use again after it was killed.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (h *house) start(role string) (firstLine string) {
	h.Helper()
	p := start(h.T, role, h.environment...)
	h.running[role] = p
	return p.firstLine
}

// killAtRandom kills a process whenever further outcomes are known, and starts it again.
func (h *house) killAtRandom(known func() int64, total int64) {
	h.Helper()
	draw := rand.New(rand.NewPCG(*seed, 0))
	for n := range outcomeKills {
		goal := total * 8 / 10 * int64(n+1) / (outcomeKills + 1)
		testkit.Eventually(h.T, timeout, func() bool { return known() >= goal })
		role := slices.Sorted(maps.Keys(h.running))[draw.IntN(len(h.running))]
		h.running[role].kill()
		h.Logf("%s killed with %d of %d outcomes known", role, known(), total)
		h.start(role)
	}
}

func (h *house) replay(id failed.ReplayID) *failed.Replay {
	h.Helper()
	r, err := h.archive.Replay(h.Context(), id)
	if err != nil {
		h.Fatal(err)
	}
	return r
}

// with returns the message ids of a replay with these outcomes.
func (h *house) with(id failed.ReplayID, outcomes ...failed.Outcome) map[string]bool {
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

// notes contains the records of the worker, by message ID.
type notes struct{ succeeded, refused, unreported map[string]bool }

func (h *house) notes() notes {
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

// desk archives failed messages and executes replays until it is killed.
func desk(ctx context.Context) error {
	a, c, err := open(ctx)
	if err != nil {
		return err
	}
	r, err := failed.NewReplayer(c, a, failed.ReplayerConfig{Lease: lease})
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- take(ctx, a, c) }()
	go func() { ended <- r.Run(ctx) }()
	return <-ended
}

package demo

import (
	"context"
	_ "embed" // releases.json
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// releasesJSON contains real releases with the IDs of their front covers.
//
//go:embed releases.json
var releasesJSON []byte

// Releases with a special role.
const (
	// refusedGID is the release Dance Fever (live at Madison Square Garden), by Florence + the Machine. The store
	// refuses all requests to its bucket.
	refusedGID = "27dd50ed-1446-4f14-8cda-23fe2f476ccc"

	// unknownGID is a release that the catalog does not have: Mahal, by Glass Beams.
	unknownGID = "5cbbe06e-ef56-414f-8b1a-00d9840d7119"
)

type release struct {
	GID    string
	Title  string
	Artist string
	Images []struct{ ID int64 }
}

func (r release) image() string { return strconv.FormatInt(r.Images[0].ID, 10) }

func (r release) String() string { return r.Title + " · " + r.Artist }

func loadCatalog() (all []release, err error) {
	if err := json.Unmarshal(releasesJSON, &all); err != nil {
		return nil, fmt.Errorf("demo: releases.json: %w", err)
	}
	return all, nil
}

// indexer handles the three kinds of events. The body of an index event is the ID of a release. The body of a delete
// event has two lines: an image and a release. The body of a move event has three lines: an image, the old release and
// the new release. Handlers may run any number of times for the same event.
type indexer struct {
	store *store
	known map[string]bool // ids of releases

	mu      sync.Mutex
	handled map[string]int    // message id: number of times a handler returned nil
	notes   map[string]string // message id: remark of the last attempt
}

func newIndexer(o Options, catalog []release) *indexer {
	x := &indexer{store: newStore(o), known: map[string]bool{}, handled: map[string]int{}, notes: map[string]string{}}
	for _, r := range catalog {
		x.known[r.GID] = true
	}
	return x
}

// count returns a handler that records the successes of h.
func (x *indexer) count(h reprise.HandlerFunc) reprise.HandlerFunc {
	return func(ctx context.Context, m *reprise.Delivery) error {
		err := h(ctx, m)
		if err == nil {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.handled[m.MessageID]++
		}
		return err
	}
}

// successes returns the number of times that a handler returned nil, by message id.
func (x *indexer) successes() map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.handled)
}

func (x *indexer) setNote(m *reprise.Delivery, text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.notes[m.MessageID] = text
}

func (x *indexer) note(id string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.notes[id]
}

func (x *indexer) index(ctx context.Context, m *reprise.Delivery) error {
	fields, err := parse("index", m.Body, "gid")
	if err != nil {
		return reprise.Park(err)
	}
	gid := fields[0]
	if !x.known[gid] {
		x.setNote(m, "unknown release, skipped")
		return nil
	}
	if err := x.store.put(ctx, bucket(gid)+"/index.json"); err != nil {
		return err
	}
	return x.store.put(ctx, bucket(gid)+"/"+bucket(gid)+"_mb_metadata.xml")
}

func (x *indexer) delete(ctx context.Context, m *reprise.Delivery) error {
	fields, err := parse("delete", m.Body, "id", "gid")
	if err != nil {
		return reprise.Park(err)
	}
	return x.store.delete(ctx, imageKey(fields[1], fields[0]))
}

func (x *indexer) move(ctx context.Context, m *reprise.Delivery) error {
	fields, err := parse("move", m.Body, "id", "old gid", "new gid")
	if err != nil {
		return reprise.Park(err)
	}
	from, to := imageKey(fields[1], fields[0]), imageKey(fields[2], fields[0])
	if found, err := x.store.copy(ctx, from, to); err != nil {
		return err
	} else if !found {
		x.setNote(m, "already moved")
		return nil
	}
	return x.store.delete(ctx, from)
}

// parse returns the lines of a body, one per name. The value of each name that ends in "gid" must be
// the ID of a release.
func parse(event string, body []byte, names ...string) ([]string, error) {
	fields := strings.Split(string(body), "\n")
	if n := len(fields); n != len(names) {
		return nil, fmt.Errorf("%s event: body must have the lines %s: got %s", event, strings.Join(names, ", "), terminal.Plural(n, "line"))
	}
	for i, name := range names {
		if strings.HasSuffix(name, "gid") && !mbid.MatchString(fields[i]) {
			return nil, fmt.Errorf("%s event: %.40q is not the MBID of a release", event, fields[i])
		}
	}
	return fields, nil
}

func bucket(gid string) string { return "mbid-" + gid }

func imageKey(gid, image string) string {
	return bucket(gid) + "/" + bucket(gid) + "-" + image + ".jpg"
}

// The store refuses the same request at most maxStreak times in a row, and then accepts it at least spared times. A message
// that needs two requests therefore fails at most four times, which the design permits: only the planned messages end in
// the failed queue.
const (
	maxStreak = 2
	spared    = 8
)

// store is a map of objects. It delays responses, refuses a fraction of the requests, and refuses every request to the
// bucket of refusedGID.
type store struct {
	faultRate float64
	latency   time.Duration

	mu      sync.Mutex
	objects map[string]bool
	rng     *rand.Rand
	streaks map[string]int // request: refusals in a row; negative: number of times to accept it
}

func newStore(o Options) *store {
	return &store{
		faultRate: o.FaultRate, latency: o.Latency, objects: map[string]bool{},
		rng: rand.New(rand.NewPCG(o.Seed, 2)), streaks: map[string]int{},
	}
}

// upload stores an image without delay or fault.
func (s *store) upload(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = true
}

func (s *store) put(ctx context.Context, key string) error {
	return s.request(ctx, "PUT", key, func() { s.objects[key] = true })
}

func (s *store) delete(ctx context.Context, key string) error {
	return s.request(ctx, "DELETE", key, func() { delete(s.objects, key) })
}

// copy copies an object, and reports whether the source exists.
func (s *store) copy(ctx context.Context, from, to string) (found bool, err error) {
	err = s.request(ctx, "PUT", to, func() {
		if found = s.objects[from]; found {
			s.objects[to] = true
		}
	})
	return found, err
}

// request calls the function effect, with s.mu locked, unless the store refuses the request.
func (s *store) request(ctx context.Context, method, key string, effect func()) error {
	s.mu.Lock()
	delay := time.Duration(0)
	if s.latency > 0 {
		delay = time.Duration(s.rng.Int64N(int64(s.latency)))
	}
	refused := s.refuses(method + " " + key)
	s.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	if refused || strings.HasPrefix(key, bucket(refusedGID)) {
		return errors.New("503 SlowDown: " + method + " " + key + ": Please reduce your request rate.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	effect()
	return nil
}

func (s *store) refuses(request string) bool {
	switch streak := s.streaks[request]; {
	case streak < 0:
		s.streaks[request]++
	case streak < maxStreak && s.rng.Float64() < s.faultRate:
		s.streaks[request]++
		return true
	case streak > 0:
		s.streaks[request] = -spared
	}
	return false
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// eachUser runs a test with a function that connects as a new user with the given permissions.
func eachUser(t *testing.T, test func(t *testing.T, admin *reprise.Client, as func(configure, write, read string) *reprise.Client, remove func(path string))) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		put := func(path, body string) {
			t.Helper()
			method := http.MethodPut
			if body == "" {
				method = http.MethodDelete
			}
			q, err := http.NewRequestWithContext(context.Background(), method, api+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			q.SetBasicAuth("guest", "guest")
			a, err := testkit.HTTPClient(t).Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			if text, _ := io.ReadAll(a.Body); a.StatusCode >= 300 {
				t.Fatalf("%s %s: %d %s", method, path, a.StatusCode, text)
			}
		}
		connect := func(address string) *reprise.Client {
			t.Helper()
			c, err := reprise.Dial(t.Context(), address, &reprise.Config{
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Reconnect: backoff.Fixed(50 * time.Millisecond),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			return c
		}
		as := func(configure, write, read string) *reprise.Client {
			t.Helper()
			user := testkit.Name(t, "user")
			put("/api/users/"+user, `{"password":"secret","tags":""}`)
			t.Cleanup(func() { put("/api/users/"+user, "") })
			put("/api/permissions/%2F/"+user, fmt.Sprintf(`{"configure":%q,"write":%q,"read":%q}`, configure, write, read))
			u, err := url.Parse(b.URL)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(user, "secret")
			return connect(u.String())
		}
		test(t, connect(b.URL), as, func(path string) { put(path, "") })
	})
}

// Each role of docs/security.md works with exactly the permissions in that document. The administrator has declared the
// queues, and no role may configure anything.
func TestRolesWithoutConfigurePermission(t *testing.T) {
	const none = "^$"
	eachUser(t, func(t *testing.T, admin *reprise.Client, as func(configure, write, read string) *reprise.Client, remove func(path string)) {
		ctx := t.Context()
		work := testkit.Name(t, "role")
		failedQueue, wait := topology.FailedQueue(work), work+".wait.0-1000"
		buckets := topology.Buckets{}
		hop, err := buckets.Wait(topology.Delivery{Queue: work}, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.Declare(ctx, buckets.Topology(work).Merge(hop.Topology)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, q := range []string{work, failedQueue, wait} {
				remove("/api/queues/%2F/" + q)
			}
		})

		publisher := as(none, `^amq\.default$`, none)
		if err := publisher.Publish(ctx, &reprise.Message{RoutingKey: work, MessageID: "1"}); err != nil {
			t.Fatalf("publisher: %v", err)
		}

		var attempts, mended atomic.Int64
		worker, err := reprise.NewWorker(as(none, `^amq\.default$`, "^"+work+`(\..*)?$`), reprise.WorkerConfig{
			Queue: work, Policy: reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(time.Millisecond)},
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				if attempts.Add(1); mended.Load() == 1 {
					return nil
				}
				return errors.New("not yet")
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		runUntilEnd(t, worker.Run)
		testkit.Eventually(t, timeout, func() bool { return attempts.Load() == 2 })

		archive := openArchive(t)
		archivist := as(none, none, "^"+failedQueue+"$")
		ingest, err := ingest.New(archivist, archive, ingest.Config{Queues: []string{failedQueue}})
		if err != nil {
			t.Fatal(err)
		}
		runUntilEnd(t, ingest.Run)
		testkit.Eventually(t, timeout, func() bool {
			n, err := archive.Export(ctx, failed.Filter{}, io.Discard)
			return err == nil && n == 1
		})

		console := as(none, `^amq\.default$`, "^"+work+`(\.failed)?$`)
		replayer := replay.New(console, archive, replay.Config{})
		runUntilEnd(t, replayer.Run)
		mended.Store(1)
		if _, err := archive.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{All: true}}, "cli:test"); err != nil {
			t.Fatal(err)
		}
		replayer.Wake()
		testkit.Eventually(t, timeout, func() bool { return attempts.Load() == 3 })

		reader := as(none, none, "^"+work+`(\.failed)?$`)
		for _, q := range []string{work, failedQueue} {
			if _, err := reader.Depth(ctx, q); err != nil {
				t.Errorf("depth of %s: %v", q, err)
			}
		}
	})
}

// A worker with the permissions for its own names declares its queues.
func TestWorkerDeclaresItsQueues(t *testing.T) {
	eachUser(t, func(t *testing.T, _ *reprise.Client, as func(configure, write, read string) *reprise.Client, remove func(path string)) {
		work := testkit.Name(t, "role")
		own := "^" + work + `(\..*)?$`
		hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: work}, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if err := as(own, `^(amq\.default|`+own[1:len(own)-1]+`)$`, own).Declare(t.Context(), topology.Buckets{}.Topology(work).Merge(hop.Topology)); err != nil {
			t.Fatal(err)
		}
		for _, q := range []string{work, topology.FailedQueue(work), work + ".wait.0-1000"} {
			remove("/api/queues/%2F/" + q)
		}
	})
}

// If an object is missing, the worker reports all missing objects at once, with the permission that it needs.
func TestMissingObjectsWithoutConfigurePermission(t *testing.T) {
	eachUser(t, func(t *testing.T, _ *reprise.Client, as func(configure, write, read string) *reprise.Client, _ func(path string)) {
		work := testkit.Name(t, "role")
		err := as("^$", ".*", ".*").Declare(t.Context(), topology.Buckets{}.Topology(work))
		refused, ok := errors.AsType[*reprise.DeclareError](err)
		if !ok || !strings.Contains(refused.Advice, "grant the configure permission") {
			t.Errorf("got %v, want a DeclareError about the permission to configure", err)
		}
		for _, q := range []string{work, topology.FailedQueue(work)} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("cannot declare queue %q", q)) {
				t.Errorf("got %v, want an error that names %s", err, q)
			}
		}
	})
}

// A check reports each missing object that the user may not create. It creates nothing, whatever the user may do.
func TestCheckReportsMissingPermissions(t *testing.T) {
	const none = "^$"
	eachUser(t, func(t *testing.T, admin *reprise.Client, as func(configure, write, read string) *reprise.Client, remove func(path string)) {
		work, post := testkit.Name(t, "check"), testkit.Name(t, "post")
		failed := topology.FailedQueue(work)
		objects := []string{work, failed, post}
		cfg := reprise.WorkerConfig{
			Queue: work, Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
			Topology: topology.Topology{
				Exchanges: []topology.Exchange{{Name: post, Kind: topology.Fanout}},
				Bindings:  []topology.Binding{{Exchange: post, Queue: work}},
			},
		}
		check := func(configure string) error {
			t.Helper()
			w, err := reprise.NewWorker(as(configure, ".*", ".*"), cfg)
			if err != nil {
				t.Fatal(err)
			}
			return w.Check(t.Context())
		}
		refuses := func(configure string, missing ...string) {
			t.Helper()
			err := check(configure)
			for _, name := range objects {
				if reported := err != nil && strings.Contains(err.Error(), fmt.Sprintf("%q", name)); reported != slices.Contains(missing, name) {
					t.Errorf("configure %s: got error %v, want the missing objects %q", configure, err, missing)
				}
			}
			if len(missing) > 0 && !strings.Contains(fmt.Sprint(err), "does not exist") {
				t.Errorf("configure %s: got error %v, want the cause", configure, err)
			}
		}
		refuses(none, objects...)
		refuses("^"+work+"$", failed, post)
		refuses(".*")
		for _, queue := range []string{work, failed} {
			if _, err := admin.Depth(t.Context(), queue); err == nil {
				t.Errorf("the check has created queue %s", queue)
			}
		}
		if err := admin.Publish(t.Context(), &reprise.Message{Exchange: post}); !strings.Contains(fmt.Sprint(err), "does not exist") {
			t.Errorf("publish to exchange %s: got error %v, want that the exchange does not exist", post, err)
		}

		if err := admin.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: failed}}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { remove("/api/queues/%2F/" + failed) })
		refuses(none, work, post)
	})
}

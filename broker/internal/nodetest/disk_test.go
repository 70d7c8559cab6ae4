package nodetest

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/management"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/testkit"
)

const timeout = 2 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testNode is a node with a client and with a store on a test file system.
type testNode struct {
	*node.Node
	t     *testing.T
	store store.Store
	api   *management.Handler
	conn  *amqp.Connection
	ch    *amqp.Channel
}

func run(t *testing.T, fs vfs.FS, diskLimit int64) *testNode {
	t.Helper()
	return runLogged(t, fs, diskLimit, slog.New(slog.DiscardHandler))
}

func runLogged(t *testing.T, fs vfs.FS, diskLimit int64, log *slog.Logger) *testNode {
	t.Helper()
	s, err := diskstore.Open(diskstore.Options{Dir: "data", Log: log, FS: fs})
	must(t, err)
	n, err := node.New(node.Config{
		Log: log, Store: s, DiskLimit: diskLimit, MemoryLimit: 1 << 30, Resident: 1 << 29,
		Sessions: session.Config{ChannelMax: 10, FrameMax: 131072, MaxMessageSize: 1 << 20},
	})
	must(t, err)
	must(t, n.Access.SetUser(access.User{Name: "guest", Hash: access.HashPassword("guest"), Tags: []string{"administrator"}}))
	must(t, n.Access.SetPermission(access.Permission{User: "guest", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}))
	r := &testNode{Node: n, t: t, store: s, api: management.New(n, func() []net.Addr { return nil }, log)}
	r.conn, err = amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{Dial: func(string, string) (net.Conn, error) {
		client, server := net.Pipe()
		return client, n.Serve(server)
	}})
	must(t, err)
	r.ch, err = r.conn.Channel()
	must(t, err)
	must(t, r.ch.Confirm(false))
	_, err = r.ch.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	return r
}

// close shuts down the node, closes the store, and returns the error from closing the store.
func (r *testNode) close() error {
	r.t.Helper()
	must(r.t, r.Shutdown(context.Background()))
	return r.store.Close(true)
}

func (r *testNode) publish() *amqp.DeferredConfirmation {
	r.t.Helper()
	confirm, err := r.ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
	must(r.t, err)
	return confirm
}

func (r *testNode) call(method, path, body string) (status int, answer string) {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	request.RemoteAddr = "127.0.0.1:1"
	request.SetBasicAuth("guest", "guest")
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, request)
	return w.Code, w.Body.String()
}

func (r *testNode) ready(queue string) int {
	q := r.VHost("/").FindQueue(queue)
	if q == nil {
		return 0
	}
	return q.Stats().Ready
}

// limitedDisk is a disk that reports the free space that the test has set.
type limitedDisk struct {
	vfs.FS
	free atomic.Uint64
}

func (s *limitedDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: s.free.Load()}, nil
}

// newFillableDisk returns a disk that is full while full is set.
func newFillableDisk() (fs vfs.FS, full *atomic.Bool) {
	full = new(atomic.Bool)
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	})), full
}

// While the disk is nearly full, the broker blocks publishers and notifies them.
func TestDiskAlarmBlocksPublishers(t *testing.T) {
	disk := &limitedDisk{FS: vfs.NewMem()}
	disk.free.Store(1000)
	r := run(t, disk, 1000)
	defer func() { must(t, r.close()) }()
	blocked := r.conn.NotifyBlocked(make(chan amqp.Blocking, 10))
	if !r.publish().Wait() {
		t.Error("message was not confirmed")
	}
	check := func(free uint64, alarm string, status int) {
		t.Helper()
		disk.free.Store(free)
		testkit.Eventually(t, timeout, func() bool {
			_, node := r.call("GET", "/api/nodes/reprise@localhost?columns=disk_free,disk_free_limit,disk_free_alarm", "")
			return strings.Contains(node, `"disk_free_alarm":`+alarm) && strings.Contains(node, `"disk_free_limit":1000`)
		})
		if got, answer := r.call("GET", "/api/health/checks/local-alarms", ""); got != status {
			t.Errorf("health check: got %d, want %d: %s", got, status, answer)
		}
	}

	check(999, "true", 503)
	if _, answer := r.call("GET", "/api/health/checks/alarms", ""); !strings.Contains(answer, `"resource":"disk"`) {
		t.Errorf("health check: got %s, want the resource disk", answer)
	}
	if _, text := r.call("GET", "/metrics", ""); !strings.Contains(text, "\nrabbitmq_alarms_free_disk_space_watermark 1\n") ||
		!strings.Contains(text, "\nrabbitmq_disk_space_available_bytes 999\n") {
		t.Errorf("metrics do not contain the alarm:\n%s", text)
	}
	confirm := r.publish()
	if e := <-blocked; !e.Active || e.Reason != "low on disk" {
		t.Errorf("unexpected notification: %+v", e)
	}
	check(1000, "false", 200)
	if e := <-blocked; e.Active {
		t.Errorf("unexpected notification: %+v", e)
	}
	if !confirm.Wait() {
		t.Error("message was not confirmed")
	}
}

// While the disk hangs, the broker blocks publishers and reports the disk, not a lack of space.
func TestHungDiskBlocksPublishers(t *testing.T) {
	memory, hangs := &limitedDisk{FS: vfs.NewMem()}, make(chan struct{})
	memory.free.Store(1000)
	var hung atomic.Bool
	r := run(t, errorfs.Wrap(memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if hung.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			<-hangs
		}
		return nil
	})), 1000)
	defer func() { must(t, r.close()) }()
	blocked := r.conn.NotifyBlocked(make(chan amqp.Blocking, 10))
	hung.Store(true)
	confirm := r.publish()
	testkit.Eventually(t, timeout, func() bool {
		status, answer := r.call("GET", "/api/health/checks/alarms", "")
		return status == 503 && strings.Contains(answer, `"resource":"disk_response"`) && !strings.Contains(answer, `"resource":"disk"`)
	})
	if _, node := r.call("GET", "/api/nodes/reprise@localhost?columns=disk_free_alarm", ""); !strings.Contains(node, `"disk_free_alarm":false`) {
		t.Errorf("node reports low disk space: %s", node)
	}
	r.publish()
	if e := <-blocked; !e.Active || !strings.Contains(e.Reason, "does not respond") {
		t.Errorf("unexpected notification: %+v", e)
	}
	close(hangs)
	if e := <-blocked; e.Active || !confirm.Wait() {
		t.Errorf("after the disk has responded: got %+v, want no alarm and a confirm", e)
	}
}

// After a failed write, the broker does not confirm messages, and reports the failure to all publishers. After a
// restart, the queue still contains the messages that were confirmed before the failure.
func TestFailedDiskConfirmsNoMessages(t *testing.T) {
	memory := vfs.NewCrashableMem()
	var broken atomic.Bool
	r := run(t, errorfs.Wrap(memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.EIO
		}
		return nil
	})), 0)
	blocked := r.conn.NotifyBlocked(make(chan amqp.Blocking, 10))
	if !r.publish().Wait() {
		t.Error("message was not confirmed")
	}

	broken.Store(true)
	confirm := r.publish()
	testkit.Eventually(t, timeout, func() bool {
		status, answer := r.call("GET", "/api/health/checks/alarms", "")
		return status == 503 && strings.Contains(answer, `"resource":"store"`)
	})
	if _, text := r.call("GET", "/metrics", ""); !strings.Contains(text, "\nreprise_alarms_store_failed 1\n") {
		t.Errorf("metrics do not contain the alarm:\n%s", text)
	}
	if status, answer := r.call("PUT", "/api/queues/%2F/late", `{"durable":true}`); status != 503 {
		t.Errorf("declaration after the failure: got %d %s, want 503", status, answer)
	}
	r.publish()
	if e := <-blocked; !e.Active || !strings.Contains(e.Reason, "the disk has failed") {
		t.Errorf("unexpected notification: %+v", e)
	}
	if r.close() == nil {
		t.Error("Close returned no error for unsaved changes")
	}
	if confirm.Acked() {
		t.Error("unsaved message was confirmed")
	}

	r = run(t, memory.CrashClone(vfs.CrashCloneCfg{}), 0)
	if n := r.ready("q"); n < 1 || n > 2 {
		t.Errorf("messages after the restart: got %d, want 1 or 2", n)
	}
	must(t, r.close())
}

// If the disk is full, a shutdown does not wait for free space.
func TestShutdownDoesNotWaitForFullDisk(t *testing.T) {
	fs, full := newFillableDisk()
	r := run(t, fs, 0)
	full.Store(true)
	declared := make(chan error, 1)
	go func() {
		_, err := r.ch.QueueDeclare("late", true, false, false, false, nil)
		declared <- err
	}()
	testkit.Eventually(t, timeout, func() bool {
		return r.VHost("/").FindQueue("late") != nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Shutdown(ctx); err == nil {
		t.Error("Shutdown returned no error")
	}
	if err := <-declared; err == nil {
		t.Error("declaration of an unsaved queue succeeded")
	}
	if r.store.Close(true) == nil {
		t.Error("Close returned no error for unsaved changes")
	}
}

// A management request that waits for a full disk does not delay a shutdown.
func TestShutdownWhileRequestWaitsForFullDisk(t *testing.T) {
	fs, full := newFillableDisk()
	r := run(t, fs, 0)
	full.Store(true)
	status := make(chan int, 1)
	go func() {
		got, _ := r.call("PUT", "/api/queues/%2F/late", `{"durable":true}`)
		status <- got
	}()
	testkit.Eventually(t, timeout, func() bool { return r.store.Behind() > 0 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Shutdown(ctx) }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("Shutdown returned no error")
		}
	case <-time.After(timeout):
		t.Fatal("Shutdown did not return")
	}
	if r.store.Close(true) == nil {
		t.Error("Close returned no error for unsaved changes")
	}
	if got := <-status; got != 503 {
		t.Errorf("status: got %d, want 503", got)
	}
}

// slowStore is a store whose reads block until the test closes the channel read.
type slowStore struct {
	store.Store
	reading chan struct{} // closed by the first read
	read    chan struct{} // closed when reads may continue
	once    sync.Once
}

func (s *slowStore) Load(queue uint64, level uint8, after uint64, n, bytes int) ([]store.Loaded, error) {
	s.once.Do(func() { close(s.reading) })
	<-s.read
	return s.Store.Load(queue, level, after, n, bytes)
}

// The caller may close the store after Shutdown, so Shutdown must wait until a virtual host that is being deleted no
// longer reads from the store.
func TestShutdownWaitsForVirtualHostDeletion(t *testing.T) {
	fs := vfs.NewMem()
	r := run(t, fs, 0)
	if !r.publish().Wait() {
		t.Error("message was not confirmed")
	}
	must(t, r.close())
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		opened, err := diskstore.Open(diskstore.Options{Dir: "data", Log: log, FS: fs})
		must(t, err)
		s := &slowStore{Store: opened, reading: make(chan struct{}), read: make(chan struct{})}
		n, err := node.New(node.Config{Log: log, Store: s, MemoryLimit: 1 << 30, Resident: 1 << 29})
		must(t, err)
		<-s.reading // the node is now loading the queue's message from the store
		deleted := make(chan struct{})
		go func() {
			defer close(deleted)
			n.DeleteVHost("/")
		}()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- n.Shutdown(context.Background()) }()
		synctest.Wait()
		if len(ended) > 0 || len(n.VHosts()) > 0 {
			t.Error("Shutdown returned while the node reads from the store")
		}
		close(s.read)
		must(t, <-ended)
		<-deleted
		must(t, s.Close(true))
	})
}

// removableDisk is a disk on which the test can simulate the removal of the data directory.
type removableDisk struct {
	vfs.FS
	removed atomic.Bool
}

func (g *removableDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if g.removed.Load() {
		return vfs.DiskUsage{}, syscall.ENOENT
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40}, nil
}

// After the data directory was removed, the broker can still write to its open files. It must not confirm messages,
// because no process can open these files again.
func TestRemovedDirectoryConfirmsNoMessages(t *testing.T) {
	disk := &removableDisk{FS: vfs.NewMem()}
	r := run(t, disk, 0)
	if !r.publish().Wait() {
		t.Error("message was not confirmed")
	}
	disk.removed.Store(true)
	testkit.Eventually(t, timeout, func() bool {
		status, answer := r.call("GET", "/api/health/checks/alarms", "")
		return status == 503 && strings.Contains(answer, `"resource":"store"`)
	})
	confirm := r.publish()
	if err := r.close(); err == nil || !strings.Contains(err.Error(), "directory not found") {
		t.Errorf("Close: got %v, want directory not found", err)
	}
	if confirm.Acked() {
		t.Error("message in a removed directory was confirmed")
	}
}

// While publishers are blocked because of low disk space, the broker still frees the space of consumed messages.
func TestDiskAlarmFreesConsumedMessages(t *testing.T) {
	disk := &limitedDisk{FS: vfs.NewMem()}
	disk.free.Store(1000)
	r := run(t, disk, 1000)
	for range 100 {
		confirm, err := r.ch.PublishWithDeferredConfirm("", "q", true, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Body: make([]byte, 100_000)})
		must(t, err)
		if !confirm.Wait() {
			t.Fatal("message was not confirmed")
		}
	}
	_, err := r.ch.QueuePurge("q", false)
	must(t, err)
	disk.free.Store(999)
	testkit.Eventually(t, timeout, func() bool {
		names, err := disk.List("data/pebble")
		must(t, err)
		return !strings.Contains(strings.Join(names, " "), ".blob")
	})
	disk.free.Store(1000)
	must(t, r.close())
}

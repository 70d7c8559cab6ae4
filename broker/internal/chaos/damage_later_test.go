package chaos

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/reprisemq/reprise/broker/internal/management"
)

// If a running broker finds damage, the client that requested the data gets an error, the broker raises an alarm, and
// the health check fails. The queue does not appear empty, and the broker does not panic.
func TestDamageFoundLater(t *testing.T) {
	zero := func(t *testing.T, disk vfs.FS, name string) {
		f, err := disk.OpenReadWrite(name, vfs.WriteCategoryUnspecified) // the file may already be open
		if err == nil {
			_, err = f.Write(make([]byte, len(contentOf(t, disk, name))))
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		like string
		harm func(t *testing.T, disk vfs.FS, name string)
	}{
		"a table is zeroed":      {".sst", zero},
		"a value file is zeroed": {".blob", zero},
		"a value file is missing": {".blob", func(t *testing.T, disk vfs.FS, name string) {
			if err := disk.Remove(name); err != nil {
				t.Fatal(err)
			}
		}},
		"a value file is cut in half": {".blob", func(t *testing.T, disk vfs.FS, name string) {
			content := contentOf(t, disk, name)
			writeTo(t, disk, name, content[:len(content)/2])
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkDamageLater(t, test.like, test.harm) })
		})
	}
}

func checkDamageLater(t *testing.T, like string, harm func(t *testing.T, disk vfs.FS, name string)) {
	disk := vfs.NewCrashableMem()
	p := powerUp(t, disk)
	ch := dialChannel(t, p)
	for _, name := range damageQueues {
		if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	const each = 200
	publishSome(t, ch, each*len(damageQueues))
	if err := p.store.MakeRoom(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.off(t)

	damage := func() {
		for _, file := range filesOf(t, disk, "data") {
			if strings.HasSuffix(file, like) {
				harm(t, disk, file)
			}
		}
	}
	if like == ".sst" { // the broker would find this damage when it starts
		p = powerUp(t, disk)
		damage()
	} else {
		p = powerUpAfter(t, disk, damage)
	}
	api := management.New(p.Node, func() []net.Addr { return nil }, slog.New(slog.DiscardHandler))
	unreadable := 0
	for _, queue := range damageQueues {
		ch := dialChannel(t, p)
		for n := 0; ; n++ {
			_, ok, err := ch.Get(queue, true)
			if err != nil {
				unreadable++
				break
			}
			if !ok {
				if n < each { // with n == each, all messages were still in memory
					t.Errorf("queue %s with %d messages appears empty after %d messages", queue, each, n)
				}
				break
			}
		}
	}
	if unreadable == 0 {
		t.Error("all queues were readable")
	}
	synctest.Wait()
	r := httptest.NewRequest(http.MethodGet, "/api/health/checks/alarms", nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.SetBasicAuth("guest", "guest")
	answer := httptest.NewRecorder()
	api.ServeHTTP(answer, r)
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), `"damage"`) {
		t.Errorf("health check: got %d: %s, want 503 with \"damage\"", answer.Code, answer.Body)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Shutdown(gone)
	_ = p.store.Close(true)
}

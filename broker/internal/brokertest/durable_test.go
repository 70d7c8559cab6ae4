package brokertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// inData returns a configuration with a new data directory, which is removed after the test.
func inData(t *testing.T) broker.Config { return broker.Config{Store: disk.Dir(t.TempDir() + "/data")} }

// dirOf returns the data directory of a configuration.
func dirOf(c broker.Config) string { return string(c.Store.(disk.Dir)) }

// runBroker starts a broker, calls use, and shuts the broker down.
func runBroker(t *testing.T, config broker.Config, use func(b *broker.Broker)) {
	t.Helper()
	b, err := broker.New(config)
	must(t, err)
	use(b)
	must(t, b.Shutdown(context.Background()))
}

// publish publishes a message and waits for its confirm.
func publish(t *testing.T, ch *amqp.Channel, key string, m amqp.Publishing) {
	t.Helper()
	must(t, ch.Confirm(false))
	confirm, err := ch.PublishWithDeferredConfirm("", key, true, false, m)
	must(t, err)
	if !confirm.Wait() {
		t.Fatalf("broker nacked a message to %s", key)
	}
}

func ready(b *broker.Broker, queue string) int {
	for _, q := range b.Queues() {
		if q.Name == queue {
			return q.Ready
		}
	}
	return -1
}

func TestMessagesSurviveRestart(t *testing.T) {
	config := inData(t)
	runBroker(t, config, func(b *broker.Broker) {
		ch := channel(t, dial(t, b))
		must(t, declare(ch, "q", nil))
		for _, mode := range []uint8{amqp.Transient, amqp.Persistent, amqp.Persistent} {
			publish(t, ch, "q", amqp.Publishing{DeliveryMode: mode})
		}
	})
	runBroker(t, config, func(b *broker.Broker) {
		ch := channel(t, dial(t, b))
		for range 2 {
			if d, ok, err := ch.Get("q", true); err != nil || !ok || d.Redelivered {
				t.Errorf("message: got %+v %v %v, want one that is not redelivered", d, ok, err)
			}
		}
		if n := ready(b, "q"); n != 0 {
			t.Errorf("%d messages are still in the queue", n)
		}
	})
}

// api calls the management API as guest.
func api(t *testing.T, b *broker.Broker, method, path, body string) (status int, answer string) {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	r.SetBasicAuth("guest", "guest")
	w := httptest.NewRecorder()
	b.Management().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestUsersAndPermissionsSurviveRestart(t *testing.T) {
	config := inData(t)
	var users []access.User
	var permissions []access.Permission
	runBroker(t, config, func(b *broker.Broker) {
		for _, r := range [][3]string{
			{"PUT", "/api/vhosts/v", `{"description":"d","tags":"x,y"}`},
			{"PUT", "/api/users/a%2Fb%00%FF", `{"password":"p","tags":"monitoring,management"}`},
			{"PUT", "/api/users/nobody", `{"tags":""}`},
			{"PUT", "/api/users/gone", `{"password":"p","tags":""}`},
			{"PUT", "/api/permissions/v/a%2Fb%00%FF", `{"configure":"^a\\/","write":"","read":".*"}`},
			{"PUT", "/api/permissions/v/gone", `{"configure":"","write":"","read":""}`},
			{"PUT", "/api/permissions/v/nobody", `{"configure":"","write":"","read":""}`},
			{"DELETE", "/api/permissions/v/nobody", ""},
			{"DELETE", "/api/users/gone", ""},
			{"PUT", "/api/exchanges/v/transient", `{"durable":false}`},
			{"PUT", "/api/topic-permissions/v/a%2Fb%00%FF", `{"exchange":"amq.topic","write":"^a","read":"{vhost}"}`},
			{"PUT", "/api/topic-permissions/v/nobody", `{"exchange":"transient","write":"","read":""}`},
			{"PUT", "/api/topic-permissions/v/nobody", `{"exchange":"amq.topic","write":"","read":""}`},
			{"DELETE", "/api/topic-permissions/v/nobody/amq.topic", ""},
			{"POST", "/api/vhosts/v/deletion/protection", ""},
			{"PUT", "/api/vhosts/w", ""},
			{"PUT", "/api/topic-permissions/w/nobody", `{"exchange":"amq.topic","write":"","read":""}`},
			{"DELETE", "/api/vhosts/w", ""},
		} {
			if status, answer := api(t, b, r[0], r[1], r[2]); status/100 != 2 {
				t.Fatalf("%v: got %d, want 2xx: %s", r, status, answer)
			}
		}
		users, permissions = nodeOf(b).Access.Users(), nodeOf(b).Access.Permissions()
	})
	runBroker(t, config, func(b *broker.Broker) {
		if status, answer := api(t, b, "DELETE", "/api/vhosts/v", ""); status != 412 {
			t.Errorf("delete the protected virtual host: got %d, want 412: %s", status, answer)
		}
		control := nodeOf(b).Access
		if fmt.Sprint(control.Users()) != fmt.Sprint(users) || !slices.Equal(control.Permissions(), permissions) || len(users) != 3 || len(permissions) != 3 {
			t.Errorf("users %+v\nwere  %+v\npermissions %+v\nwere        %+v", control.Users(), users, control.Permissions(), permissions)
		}
		if !control.Authenticate("a/b\x00\xff", "p") || control.Authenticate("nobody", "") {
			t.Error("passwords differ after the restart")
		}
		if !control.Allowed("a/b\x00\xff", "v", access.Configure, "a/") || control.Allowed("a/b\x00\xff", "v", access.Configure, "b") {
			t.Error("permissions have a different effect after the restart")
		}
		any := func(access.TopicPermission) bool { return true }
		if got := control.TopicPermissions(any); len(got) != 1 || got[0].Exchange != "amq.topic" || got[0].Write != "^a" {
			t.Errorf("topic permissions: got %+v, want the one for amq.topic", got)
		}
		if keys := control.Topics("a/b\x00\xff", "v")["amq.topic"]; !keys.Permit(access.Write, "ab") || keys.Permit(access.Read, "ab") {
			t.Error("topic permissions have a different effect after the restart")
		}
		if about := nodeOf(b).VHost("v").About(); about.Description != "d" || len(about.Tags) != 2 {
			t.Errorf("unexpected virtual host: %+v", about)
		}
	})
}

func TestNewCreatesGuestOnlyOnce(t *testing.T) {
	config := inData(t)
	runBroker(t, config, func(b *broker.Broker) {
		if !b.DefaultLogin() {
			t.Error("new broker has no user guest")
		}
		must(t, nodeOf(b).Access.DeleteUser("guest"))
		nodeOf(b).DeleteVHost("/")
	})
	runBroker(t, config, func(b *broker.Broker) {
		if b.DefaultLogin() || len(nodeOf(b).Access.Users()) != 0 || len(nodeOf(b).VHosts()) != 0 {
			t.Error("deleted users or virtual hosts exist after the restart")
		}
	})
	config.Users = map[string]string{"ada": "s3cret"}
	config.Definitions = []byte(`{"vhosts":[{"name":"/"}]}`)
	runBroker(t, config, func(b *broker.Broker) {
		if !nodeOf(b).Access.Authenticate("ada", "s3cret") || nodeOf(b).VHost("/") == nil {
			t.Error("broker does not add the configured user to an existing data directory")
		}
	})
	config.Users["ada"] = "another"
	runBroker(t, config, func(b *broker.Broker) {
		if !nodeOf(b).Access.Authenticate("ada", "another") {
			t.Error("stored password overrides the configured password")
		}
	})
}

func TestNewRejectsUnusableDataDirectory(t *testing.T) {
	config := inData(t)
	runBroker(t, config, func(b *broker.Broker) {
		if _, err := broker.New(config); !errors.Is(err, broker.ErrInUse) {
			t.Errorf("second broker on the directory: got %v, want ErrInUse", err)
		}
	})
	for _, format := range []string{"reprise 99\n", "reprise 1\n"} {
		must(t, os.WriteFile(filepath.Join(dirOf(config), "FORMAT"), []byte(format), 0o600))
		if _, err := broker.New(config); !errors.Is(err, broker.ErrFormat) || !strings.Contains(err.Error(), dirOf(config)) {
			t.Errorf("unknown format: got %v, want ErrFormat with the directory", err)
		}
	}
	file := t.TempDir() + "/file"
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := broker.New(broker.Config{Store: disk.Dir(file)}); err == nil {
		t.Error("New accepts a file as data directory")
	}
	if _, err := broker.New(broker.Config{DiskLimit: -1}); err == nil {
		t.Error("New accepts a negative DiskLimit")
	}
}

// If New fails because of the configuration, it leaves the data directory unchanged and unlocked.
func TestFailedNewUnlocksDataDirectory(t *testing.T) {
	config := inData(t)
	wrong := config
	wrong.Definitions = []byte(`{"policies":[{"name":"p"}]}`)
	if _, err := broker.New(wrong); err == nil {
		t.Error("New accepts definitions with a policy")
	}
	runBroker(t, config, func(b *broker.Broker) {
		if !b.DefaultLogin() {
			t.Error("user guest does not exist")
		}
	})
}

func TestBackup(t *testing.T) {
	config := inData(t)
	to := filepath.Join(filepath.Dir(dirOf(config)), "backup")
	runBroker(t, config, func(b *broker.Broker) {
		ch := channel(t, dial(t, b))
		must(t, declare(ch, "q", nil))
		publish(t, ch, "q", amqp.Publishing{DeliveryMode: amqp.Persistent})
		if _, ok, err := ch.Get("q", false); !ok || err != nil {
			t.Fatal("cannot get a message:", err)
		}
		must(t, b.Backup(context.Background(), to))
		publish(t, ch, "q", amqp.Publishing{DeliveryMode: amqp.Persistent})
	})
	restored := filepath.Join(filepath.Dir(dirOf(config)), "restored")
	found, err := disk.Restore(to, restored)
	if err != nil || found != (disk.Restored{Queues: 1, Messages: 1}) {
		t.Errorf("unexpected result of Restore: %+v, %v", found, err)
	}
	if _, err := disk.Restore(to, restored); err == nil {
		t.Error("Restore accepts a directory that is not empty")
	}
	runBroker(t, broker.Config{Store: disk.Dir(restored)}, func(b *broker.Broker) {
		d, ok, err := channel(t, dial(t, b)).Get("q", true)
		if err != nil || !ok || !d.Redelivered {
			t.Errorf("message: got %+v %v %v, want a redelivered one", d, ok, err)
		}
	})
	b, err := broker.New(config)
	must(t, err)
	must(t, b.Shutdown(context.Background()))
	must(t, b.Shutdown(context.Background()))
	if err := b.Backup(context.Background(), to+"2"); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("Backup after Shutdown: got %v, want ErrClosed", err)
	}
	runBroker(t, broker.Config{}, func(b *broker.Broker) {
		if err := b.Backup(context.Background(), to+"2"); err == nil {
			t.Error("Backup of an in-memory broker returned no error")
		}
	})
}

// If a start fails before the recovery from an earlier crash is complete, the next start must complete the recovery.
func TestFailedStartKeepsCrashMark(t *testing.T) {
	config := inData(t)
	crashed := broker.Config{Store: disk.Dir(dirOf(config) + "-crashed")}
	runBroker(t, config, func(b *broker.Broker) {
		ch := channel(t, dial(t, b))
		must(t, declare(ch, "q", nil))
		publish(t, ch, "q", amqp.Publishing{DeliveryMode: amqp.Persistent})
		if _, ok, err := ch.Get("q", false); !ok || err != nil {
			t.Fatal("cannot get a message:", err)
		}
		must(t, b.Backup(context.Background(), dirOf(crashed))) // a copy of the disk of a running broker, as after a crash
	})
	change := func(do func(s store.Store)) {
		t.Helper()
		s, err := diskstore.Open(diskstore.Options{Dir: dirOf(crashed), Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		if !s.Unclean() {
			t.Error("failed start removed the mark of the crash")
		}
		do(s)
		must(t, s.Close(false))
	}
	change(func(s store.Store) { s.SetDocument("vhost/damaged", []byte("{")) })
	if _, err := broker.New(crashed); !errors.Is(err, broker.ErrDamaged) {
		t.Errorf("New: got %v, want ErrDamaged", err)
	}
	change(func(s store.Store) { s.DeleteDocument("vhost/damaged") })
	runBroker(t, crashed, func(b *broker.Broker) {
		if d, ok, err := channel(t, dial(t, b)).Get("q", true); err != nil || !ok || !d.Redelivered {
			t.Errorf("message: got %+v %v %v, want a redelivered one", d, ok, err)
		}
	})
}

// After Shutdown, the management API still responds, but does not change the data directory.
func TestAPIDoesNotChangeDataAfterShutdown(t *testing.T) {
	config := inData(t)
	b, err := broker.New(config)
	must(t, err)
	must(t, b.Shutdown(context.Background()))
	for _, r := range [][3]string{
		{"PUT", "/api/queues/%2F/late", `{"durable":true}`},
		{"PUT", "/api/users/late", `{"password":"p","tags":""}`},
		{"POST", "/api/exchanges/%2F/amq.default/publish", `{"properties":{"delivery_mode":2},"routing_key":"late","payload":"x","payload_encoding":"string"}`},
		{"DELETE", "/api/queues/%2F/late/contents", ""},
		{"DELETE", "/api/vhosts/%2F", ""},
		{"GET", "/api/nodes", ""},
		{"GET", "/api/health/checks/alarms", ""},
	} {
		if status, answer := api(t, b, r[0], r[1], r[2]); status == http.StatusServiceUnavailable {
			t.Errorf("%v: got %d, want any status except 503: %s", r, status, answer)
		}
	}
	runBroker(t, config, func(b *broker.Broker) {
		if len(b.Queues()) != 0 || len(nodeOf(b).Access.Users()) != 1 || nodeOf(b).VHost("/") == nil {
			t.Errorf("data directory changed: queues %+v, users %+v", b.Queues(), nodeOf(b).Access.Users())
		}
	})
}

// The broker does not save the users in Config.TemporaryUsers. If the user guest was deleted, a restart does not
// create it again.
func TestBrokerDoesNotStoreTemporaryUsers(t *testing.T) {
	config := inData(t)
	runBroker(t, config, func(b *broker.Broker) { must(t, nodeOf(b).Access.DeleteUser("guest")) })
	temporary := config
	temporary.TemporaryUsers = map[string]string{"guest": "guest"}
	runBroker(t, temporary, func(b *broker.Broker) { channel(t, dial(t, b)) })
	runBroker(t, config, func(b *broker.Broker) {
		if _, there := nodeOf(b).Access.User("guest"); there {
			t.Error("user guest exists again")
		}
	})
}

// The broker loads the stored topology even if it exceeds the current limit.
func TestNewLoadsTopologyAboveLimit(t *testing.T) {
	config := inData(t)
	args := amqp.Table{"x-comment": strings.Repeat("x", 1000)}
	runBroker(t, config, func(b *broker.Broker) {
		ch := channel(t, dial(t, b))
		must(t, ch.ExchangeDeclare("x", "topic", true, false, false, false, args))
		for i := range 10 {
			name := fmt.Sprint("q", i)
			must(t, declare(ch, name, args))
			must(t, ch.QueueBind(name, "a.b.c", "x", false, args))
		}
	})
	config.TopologyMemoryLimit = 4 << 10
	for range 2 {
		runBroker(t, config, func(b *broker.Broker) {
			v := nodeOf(b).VHost("/")
			if queues, bindings := len(v.Queues()), len(v.Bindings()); queues != 10 || bindings != 10 {
				t.Errorf("got %d queues and %d bindings, want 10 and 10", queues, bindings)
			}
			if used := nodeOf(b).Topology.Used(); used < 10*2*1000 {
				t.Errorf("account of the topology: got %d bytes, want at least %d", used, 10*2*1000)
			}
			ch := channel(t, dial(t, b))
			must(t, declare(ch, "q0", args))
			refusal(t, declare(ch, "one-more", nil), 406, "PRECONDITION_FAILED - cannot declare queue 'one-more' in vhost '/': "+
				"memory limit for queues, exchanges and bindings (4096 bytes) is reached; "+
				"to raise it, set TopologyMemoryLimit or --topology-memory-limit")
		})
	}
}

package nodetest

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// A message whose broker restarts with a clock that was set back waits longer by the difference. The broker reports the
// difference. Each bubble begins at the same time, so the second bubble is behind the first one.
func TestClockSetBackWhileDownIsLogged(t *testing.T) {
	const ttl = 10 * time.Minute
	for name, back := range map[string]time.Duration{"three hours": 3 * time.Hour, "two minutes": 2 * time.Minute, "a few seconds": 5 * time.Second, "not at all": -time.Minute} {
		for _, crash := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", after a crash"}[crash], func(t *testing.T) {
				disk := vfs.NewCrashableMem()
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(back)
					n := run(t, disk, 0)
					_, err := n.ch.QueueDeclare("wait", true, false, false, false, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
					must(t, err)
					c, err := n.ch.PublishWithDeferredConfirm("", "wait", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Expiration: "600000"})
					must(t, err)
					if ok, err := c.WaitContext(t.Context()); !ok {
						t.Fatal("not confirmed", err)
					}
					if crash {
						disk = disk.CrashClone(vfs.CrashCloneCfg{})
					}
					must(t, n.close())
				})
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(max(0, -back))
					var log testkit.Buffer
					n := runLogged(t, disk, 0, slog.New(slog.NewTextHandler(&log, nil)))
					late := max(0, back)
					time.Sleep(ttl + late - time.Minute)
					if n.ready("q") > 0 && late > 0 {
						t.Error("the message was not late: correct the warning")
					}
					time.Sleep(2 * time.Minute)
					if n.ready("q") != 1 {
						t.Error("the message is later than the warning states")
					}
					want := late > time.Minute
					if text := log.String(); strings.Contains(text, "clock is behind") != want || strings.Contains(text, "behind="+late.String()) != want {
						t.Errorf("got the log %q", text)
					}
					must(t, n.close())
				})
			})
		}
	}
}

package chaos

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

var (
	allDamage = flag.Bool("chaos.damage", false, "damage each file at all places, not at a few")
	update    = flag.Bool("update", false, "write the table "+damageFile)
)

// exitState is a data directory whose broker was killed while idle, killed while clients published, or shut down.
type exitState struct {
	name string
	disk *vfs.MemFS
	sure []string // messages that were confirmed more than a second before the broker exited
	all  []string
}

// damage is a kind of damage to a file.
type damage struct {
	kind string
	do   func(content []byte) []byte // if nil, the file is removed
}

func damages() []damage {
	zeroed := func(kind string, from func(size int) int) damage {
		return damage{kind, func(content []byte) []byte {
			at := max(0, from(len(content)))
			clear(content[at:min(at+4096, len(content))])
			return content
		}}
	}
	all := []damage{
		{"removed", nil},
		{"one byte shorter", func(content []byte) []byte { return content[:len(content)-1] }},
		{"cut in half", func(content []byte) []byte { return content[:len(content)/2] }},
		zeroed("zeroed at the start", func(int) int { return 0 }),
		zeroed("zeroed in the middle", func(size int) int { return size/2 - 2048 }),
		zeroed("zeroed at the end", func(size int) int { return size - 4096 }),
	}
	step := 13
	if *allDamage {
		step = 1
	}
	for i := 0; i < 32; i += step {
		all = append(all, damage{"a bit flipped", func(content []byte) []byte {
			content[len(content)*i/32] ^= 1 << (i % 8)
			return content
		}})
	}
	return all
}

// After any damage to one file, a broker either starts with every confirmed message or refuses to start. If it refuses, its
// error names the file and recommends an action, and the directory does not change. If the broker had crashed, messages of
// the last second may be missing.
func TestDamage(t *testing.T) {
	found := make(map[string]map[string]bool) // results by file and kind of damage
	for _, e := range endings(t) {
		for _, file := range filesOf(t, e.disk, "data") {
			for i, d := range damages() {
				content := contentOf(t, e.disk, file)
				if d.do != nil && len(content) == 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d %s", e.name, path.Base(file), i, d.kind), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						cell := kindOf(file) + "|" + e.name + "|" + d.kind
						if found[cell] == nil {
							found[cell] = make(map[string]bool)
						}
						found[cell][checkDamage(t, e, file, d)] = true
					})
				})
			}
		}
	}
	if !t.Failed() {
		documentDamage(t, found)
	}
}

// endings runs a broker, and returns its data directory after each of three ways to stop it.
func endings(t *testing.T) (all []exitState) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		p := powerUp(t, disk)
		ch := dialChannel(t, p)
		for i, name := range damageQueues {
			args := amqp.Table{}
			if i == 0 {
				args["x-queue-type"] = "quorum"
			}
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				t.Fatal(err)
			}
		}
		sent := publishSome(t, ch, 60) // stored in a table and a value file
		if err := p.store.MakeRoom(t.Context()); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, publishSome(t, ch, 60)...) // stored in the log
		time.Sleep(2 * time.Second)
		all = append(all, exitState{"killed", copyOf(disk), sent, sent})
		last := append(slices.Clone(sent), publishSome(t, ch, 60)...)
		all = append(all, exitState{"killed while it is published to", copyOf(disk), sent, last})
		p.off(t)
		all = append(all, exitState{"stopped", copyOf(disk), last, last})
	})
	return all
}

var damageQueues = []string{"orders", "invoices", "mails"}

func dialChannel(t *testing.T, p *poweredBroker) *amqp.Channel {
	t.Helper()
	conn, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

var damageRandom = rand.New(rand.NewPCG(1, 2))

// publishSome publishes n messages and returns the bodies of the confirmed messages.
func publishSome(t *testing.T, ch *amqp.Channel, n int) (sent []string) {
	t.Helper()
	for i := range n {
		queue := damageQueues[i%len(damageQueues)]
		body := make([]byte, 100+2500*(i%4/2))
		for j := range body {
			body[j] = byte(damageRandom.Uint32())
		}
		confirm, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, false, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := confirm.WaitContext(t.Context()); err != nil || !ok {
			t.Fatal(ok, err)
		}
		sent = append(sent, string(body))
	}
	return sent
}

// checkDamage damages a file, starts a broker, and returns the result for the table.
func checkDamage(t *testing.T, e exitState, file string, d damage) string {
	disk := copyOf(e.disk)
	if d.do == nil {
		if err := disk.Remove(file); err != nil {
			t.Fatal(err)
		}
	} else {
		writeTo(t, disk, file, d.do(contentOf(t, disk, file)))
	}
	before := readAll(t, disk)
	p, err := tryPower(disk)
	if err != nil {
		if !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrFormat) {
			t.Errorf("start: got error %v, want ErrDamaged or ErrFormat", err)
		}
		if !strings.Contains(err.Error(), path.Base(file)) || !strings.Contains(err.Error(), "restore a backup") {
			t.Errorf("error does not contain the file or the advice: %v", err)
		}
		if after := readAll(t, disk); !maps.Equal(after, before) {
			t.Errorf("failed start changed the directory: got %v, want %v", names(after), names(before))
		}
		if *allDamage || e.name == "stopped" {
			checkSalvage(t, e, file, disk)
		}
		return "refuses"
	}
	defer p.off(t)
	there := consumeAll(t, p)
	missing := func(want []string) (n int) {
		for _, body := range want {
			if there[body] == 0 {
				n++
			}
		}
		return n
	}
	for body, times := range there {
		if times > 1 || !slices.Contains(e.all, body) {
			t.Errorf("message was delivered %d times, or is unknown", times)
		}
	}
	if n := missing(e.sure); n > 0 {
		t.Errorf("%d of %d confirmed messages are missing", n, len(e.sure))
	}
	if missing(e.all) > 0 {
		return "last second"
	}
	return "starts"
}

// checkSalvage salvages a directory with one damaged file, and starts a broker. Only messages in the damaged file may
// be missing, and the report must contain the correct number of remaining messages.
func checkSalvage(t *testing.T, e exitState, file string, disk *vfs.MemFS) {
	t.Helper()
	r, err := diskstore.Salvage(diskstore.Options{Dir: "data", FS: disk}, vhost.Complete)
	if errors.Is(err, store.ErrFormat) {
		return // the damaged file FORMAT may look like the file of another version
	}
	if err != nil {
		t.Errorf("cannot salvage the directory: %v", err)
		return
	}
	p, err := tryPower(disk)
	if err != nil {
		t.Errorf("cannot start with the salvaged directory: %v", err)
		return
	}
	defer p.off(t)
	found := 0
	for _, q := range r.Queues {
		found += q.Found
	}
	there := make(map[string]int)
	if kind := kindOf(file); kind != "pebble/N.sst" && kind != "pebble/N.log" { // these files contain the declarations of the queues
		there = consumeAll(t, p)
		if len(there) != found {
			t.Errorf("salvaged messages: report contains %d, queues contain %d", found, len(there))
		}
		if kind != "pebble/N.blob" && len(there) < len(e.sure) {
			t.Errorf("confirmed messages: %d before the salvage, %d after", len(e.sure), len(there))
		}
	}
	for body, times := range there {
		if times > 1 || !slices.Contains(e.all, body) {
			t.Errorf("message was delivered %d times, or is unknown", times)
		}
	}
}

func tryPower(disk *vfs.MemFS) (*poweredBroker, error) {
	log := slog.New(slog.DiscardHandler)
	s, err := diskstore.Open(diskstore.Options{Dir: "data", Log: log, FS: disk})
	if err != nil {
		return nil, err
	}
	n, err := node.New(node.Config{
		Log: log, Sessions: session.Config{ChannelMax: 2047, FrameMax: 131072, MaxMessageSize: 1 << 20},
		MemoryLimit: 1 << 30, Store: s,
	})
	if err != nil {
		return nil, errors.Join(err, s.Close(false))
	}
	return &poweredBroker{n, disk, s}, nil
}

// consumeAll consumes all messages and returns the number of copies of each message.
func consumeAll(t *testing.T, p *poweredBroker) map[string]int {
	t.Helper()
	ch := dialChannel(t, p)
	there := make(map[string]int)
	for _, queue := range damageQueues {
		for {
			m, ok, err := ch.Get(queue, true)
			if err != nil {
				t.Errorf("%s: %v", queue, err)
				return there
			}
			if !ok {
				break
			}
			there[string(m.Body)]++
		}
	}
	return there
}

func copyOf(disk *vfs.MemFS) *vfs.MemFS {
	return disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// filesOf returns the files in a directory and its subdirectories.
func filesOf(t *testing.T, disk vfs.FS, dir string) (all []string) {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		name = path.Join(dir, name)
		about, err := disk.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if about.IsDir() {
			all = append(all, filesOf(t, disk, name)...)
		} else {
			all = append(all, name)
		}
	}
	return all
}

func readAll(t *testing.T, disk vfs.FS) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, name := range filesOf(t, disk, "data") {
		all[name] = string(contentOf(t, disk, name))
	}
	return all
}

func names(files map[string]string) []string { return slices.Sorted(maps.Keys(files)) }

func contentOf(t *testing.T, disk vfs.FS, name string) []byte {
	t.Helper()
	f, err := disk.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func writeTo(t *testing.T, disk vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := disk.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

var number = regexp.MustCompile(`[0-9]{6}`)

// kindOf returns the name of a file, with the variable parts replaced.
func kindOf(file string) string {
	name := strings.TrimPrefix(file, "data/")
	if strings.Contains(name, "marker.") {
		return "pebble/marker.*"
	}
	return number.ReplaceAllString(name, "N")
}

package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/protocol"
)

func init() {
	// The disk hangs, is full or is low on space for a while, and then recovers.
	for _, kind := range []struct {
		name string
		most time.Duration
		set  func(f *faultyFS, on bool)
	}{
		{"disk-hangs", 10 * time.Minute, func(f *faultyFS, on bool) { f.hangs = on }},
		{"disk-full", time.Hour, func(f *faultyFS, on bool) { f.full = on }},
		{"disk-low", time.Hour, func(f *faultyFS, on bool) { f.low = on }},
	} {
		RegisterAct(Act{
			Name: kind.name, Weight: 2, Fault: true,
			Draw: func(random *rand.Rand, shape Shape) []Step {
				if !shape.Disk {
					return nil
				}
				return []Step{{For: between(random, 100*time.Millisecond, kind.most)}}
			},
			Do: func(l *Life, s Step) {
				if l.Server.Disk == nil || l.Server.Broker() == nil {
					return
				}
				f := l.Server.Disk.running()
				d := l.Disturb(brokerName, "disk")
				l.Explain("broker: disk is full")
				l.Explain("broker: store closed after an error")
				f.set(func() { kind.set(f, true) })
				l.Count(kind.name)
				time.AfterFunc(s.For, func() {
					f.set(func() { kind.set(f, false) })
					d.End()
				})
			},
		})
	}
	RegisterAct(Act{
		Name: "disk-fails", Weight: 1, Fault: true,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			if !shape.Disk {
				return nil
			}
			return []Step{{For: between(random, time.Second, 10*time.Minute)}}
		},
		Do: func(l *Life, s Step) { l.Server.fail(s) },
	})
	for _, after := range []string{"stop", "crash"} {
		RegisterAct(Act{
			Name: "damage-after-" + after, Weight: 1, Fault: true,
			Draw: func(random *rand.Rand, shape Shape) []Step {
				if !shape.Disk {
					return nil
				}
				return []Step{{For: between(random, 10*time.Millisecond, time.Minute)}}
			},
			Do: func(l *Life, s Step) {
				l.Server.damageAfter(s, after)
			},
		})
	}
}

// fail makes every fsync fail until the broker restarts.
func (s *Server) fail(step Step) {
	if s.Disk == nil || s.Broker() == nil {
		return
	}
	f := s.Disk.running()
	f.set(func() { f.broken = true })
	s.l.Explain("broker: store has failed")
	s.l.Explain("broker: store closed after an error")
	s.l.Count("disk-fails")
	d := s.l.Disturb(brokerName, "disk")
	s.l.Go(func() {
		time.Sleep(step.For)
		s.Crash(Step{For: time.Second, Seed: step.Seed})
		d.End()
	})
}

const (
	promiseDamage    = "a broker does not start on damaged or missing files, names the file and does not change the directory"
	promiseTolerated = "a broker starts if only one copy of a duplicated file is damaged"
)

// damageAfter stops or crashes the broker, damages a file in a copy of its data directory, and tries to start a
// broker on the copy.
func (s *Server) damageAfter(step Step, after string) {
	if s.Disk == nil {
		return
	}
	s.outage(after, step.For, func(b *broker.Broker) {
		if after == "stop" {
			if !s.stop(b, time.Hour) {
				return // the broker counts as crashed
			}
		} else {
			s.crash(b, step)
		}
		s.tryDamaged(step, after)
	})
}

// file is a file in a data directory.
type file struct {
	name    string
	content []byte
}

func (s *Server) tryDamaged(step Step, after string) {
	random := step.Random()
	fs, err := s.Disk.copy()
	if err != nil {
		s.l.Broken(promiseDamage, "cannot copy the directory: %v", err)
		return
	}
	files, err := readAll(fs, dataDir)
	if err != nil {
		s.l.Broken(promiseDamage, "cannot read the files: %v", err)
		return
	}
	var chosen file
	for _, i := range random.Perm(len(files)) {
		if chosen = files[i]; len(chosen.content) > 0 {
			break
		}
	}
	base := path.Base(chosen.name)
	if len(chosen.content) == 0 || base == "LOCK" {
		return
	}
	kind, damaged := damageContent(random, chosen.content)
	if err := write(fs, chosen.name, damaged); err != nil {
		s.l.Broken(promiseDamage, "cannot damage %s: %v", chosen.name, err)
		return
	}
	before, _ := readAll(fs, dataDir)
	s.l.Count("damage-after-" + after)
	s.l.Count("damage: " + kindOfFile(base))
	s.l.Explain("data directory is damaged")
	whole, err := s.Disk.copy()
	if err != nil {
		s.l.Broken(promiseDamage, "cannot copy the directory: %v", err)
		return
	}
	undamaged, err := s.contents(whole)
	if err != nil {
		s.l.Broken(promiseStart, "cannot start on the undamaged directory: %v", err)
		return
	}
	found, err := s.contents(fs)
	if err == nil {
		switch {
		case !tolerated(base, after) && !isUnused(files, chosen, damaged):
			s.l.Broken(promiseDamage, "broker started after %s of %s of %d bytes (%s), with all messages: %v; files: %s", kind, chosen.name, len(chosen.content), after, maps.Equal(found, undamaged), names(files))
		case strings.HasSuffix(base, ".log") && after == "crash": // messages of the last second may be missing
		case !maps.Equal(found, undamaged):
			s.l.Broken(promiseDamage, "broker started after %s of %s of %d bytes (%s): got %d messages, want %d", kind, chosen.name, len(chosen.content), after, len(found), len(undamaged))
		}
		return
	}
	if !errors.Is(err, broker.ErrDamaged) && !errors.Is(err, broker.ErrFormat) || !strings.Contains(err.Error(), base) {
		s.l.Broken(promiseDamage, "unexpected error after %s of %s: %v", kind, chosen.name, err)
	}
	left, err := readAll(fs, dataDir)
	if err != nil || !slices.EqualFunc(before, left, func(a, b file) bool { return a.name == b.name && bytes.Equal(a.content, b.content) }) {
		s.l.Broken(promiseDamage, "broker changed the directory after %s of %s: %v", kind, chosen.name, err)
	}
	if strings.HasPrefix(base, "INVENTORY") {
		s.l.Broken(promiseTolerated, "broker did not start after %s of %s: %v", kind, chosen.name, err)
	}
}

// copy returns a copy of the disk. It explicitly deletes files whose removal was not synced, because a plain clone
// can still contain them.
func (d *Disk) copy() (*vfs.MemFS, error) {
	clone := d.FS().CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	there, err := readAll(d.FS(), dataDir)
	if err != nil {
		return nil, err
	}
	cloned, err := readAll(clone, dataDir)
	if err != nil {
		return nil, err
	}
	for _, f := range cloned {
		if !slices.ContainsFunc(there, func(t file) bool { return t.name == f.name }) {
			if err := clone.Remove(f.name); err != nil {
				return nil, err
			}
		}
	}
	return clone, nil
}

// contents starts a broker on a data directory and consumes all messages. It returns the number of copies of each message.
func (s *Server) contents(fs *vfs.MemFS) (map[string]int, error) {
	b, err := broker.New(broker.Config{Logger: s.l.Logger("broker on damage"), Store: &Disk{l: s.l, power: fs}})
	if err != nil {
		return nil, err
	}
	all := make(map[string]int)
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: func(string, string) (net.Conn, error) { return b.DialContext(context.Background(), "", "") }})
	if err == nil {
		err = takeAll(b, conn, all)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err = errors.Join(err, b.Shutdown(ctx)); err != nil {
		s.l.Broken(promiseDamage, "cannot use a broker on a copy of the directory: %v", err)
	}
	return all, nil
}

func takeAll(b *broker.Broker, conn *amqp.Connection, all map[string]int) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, q := range b.Queues() {
		if protocol.CheckNotKeyed(q.Name) != nil { // basic.get is not possible
			deliveries, err := ch.Consume(q.Name, "", true, false, false, false, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", q.Name, err)
			}
			for range q.Ready {
				d := <-deliveries
				all[string(d.Body)]++
			}
			continue
		}
		for {
			d, ok, err := ch.Get(q.Name, true)
			if err != nil {
				return fmt.Errorf("%s: %w", q.Name, err)
			}
			if !ok {
				break
			}
			all[string(d.Body)]++
		}
	}
	return conn.Close()
}

// tolerated reports whether a broker may start with all its messages although the file with the given base name was
// damaged. A crash can leave files behind that the broker does not need.
func tolerated(base, after string) bool {
	return strings.HasPrefix(base, "INVENTORY") || after == "crash" && base != "FORMAT"
}

// isUnused reports whether the damage affects only the unwritten end of a log. Pebble reuses the files of old logs and
// leaves the old content at the end.
func isUnused(files []file, log file, damaged []byte) bool {
	base, written := path.Base(log.name), -1
	for _, f := range files {
		if !strings.HasPrefix(path.Base(f.name), "INVENTORY") {
			continue
		}
		for line := range strings.Lines(string(f.content)) {
			var length int
			if rest, found := strings.CutPrefix(line, base+" "); found {
				if _, err := fmt.Sscan(rest, &length); err == nil {
					written = max(written, length)
				}
			}
		}
	}
	return strings.HasSuffix(base, ".log") && written >= 0 && written <= len(damaged) && bytes.Equal(damaged[:written], log.content[:written])
}

// kindOfFile returns the name of a file without its number.
func kindOfFile(base string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, base)
}

// damageContent returns damaged content for a file. A nil result means removal of the file.
func damageContent(random *rand.Rand, content []byte) (kind string, damaged []byte) {
	switch random.IntN(4) {
	case 0:
		return "removal", nil
	case 1:
		return "a cut", bytes.Clone(content[:random.IntN(len(content))])
	case 2:
		damaged = bytes.Clone(content)
		from := random.IntN(len(content))
		damaged[from] ^= 0xff // ensures a change if the content is already zero
		clear(damaged[from+1 : min(len(content), from+4096)])
		return "zeros", damaged
	default:
		damaged = bytes.Clone(content)
		damaged[random.IntN(len(content))] ^= 1 << random.IntN(8)
		return "a flipped bit", damaged
	}
}

// readAll returns the files in a directory and its subdirectories, ordered by name.
func readAll(fs vfs.FS, dir string) ([]file, error) {
	all := make(map[string][]byte)
	var read func(dir string) error
	read = func(dir string) error {
		names, err := fs.List(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			name = fs.PathJoin(dir, name)
			info, err := fs.Stat(name)
			if err != nil {
				return err
			}
			if info.IsDir() {
				if err := read(name); err != nil {
					return err
				}
				continue
			}
			f, err := fs.Open(name)
			if err != nil {
				return err
			}
			content, err := io.ReadAll(f)
			if err = errors.Join(err, f.Close()); err != nil {
				return err
			}
			all[name] = content
		}
		return nil
	}
	err := read(dir)
	var files []file
	for _, name := range slices.Sorted(maps.Keys(all)) {
		files = append(files, file{name, all[name]})
	}
	return files, err
}

func names(files []file) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%s %d, ", path.Base(f.name), len(f.content))
	}
	return b.String()
}

// write replaces the content of a file; nil removes the file.
func write(fs vfs.FS, name string, content []byte) error {
	if err := fs.Remove(name); err != nil || content == nil {
		return err
	}
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

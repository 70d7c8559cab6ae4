package archive

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// These promises summarize docs/failed-messages.md.
const (
	promiseStored    = "the archive acknowledges a message only after it has stored the message"
	promiseReady     = "while the database is unavailable, /readyz reports an error"
	promiseSoon      = "the console responds within 10 s to a query and 20 s to a change"
	promiseGoesOn    = "the archive continues when the database is available again"
	promiseInOrder   = "a graceful shutdown of a process succeeds"
	promiseOnce      = "the archive does not store a message twice"
	promiseExactly   = "the archive stores the exact body, properties and headers"
	promiseAnnounced = "an act changes exactly the messages that its page announced, or none"
	promiseAudit     = "the audit log records every act with its operator"
	promiseReplay    = "a replay sends each selected message, and records it after the confirm"
	promiseTwice     = "a crash or a lost connection repeats at most 100 messages of a replay"
	promiseNoRepeat  = "a graceful shutdown or the cancellation of a replay does not repeat messages"
	promiseStates    = "in the end, each replay is done, cancelled or stopped, and no message is replaying"
)

// settled is the maximum time that a process needs to notice the repair of a fault. A process queries the database at
// least every 30 s.
const settled = 2 * time.Minute

// batch is the maximum number of messages that a replay repeats after a crash.
const batch = 100

// Kill kills a process and restarts it after a pause.
func (s *System) Kill(p *Process, pause time.Duration) {
	if p == nil || p.Killed() {
		return
	}
	s.strike("kill of " + p.Name)
	s.note("%s is killed", p.Name)
	s.kill(p)
	s.startLater(p, pause)
}

// kill kills a process and keeps the state of its files at the crash.
func (s *System) kill(p *Process) {
	s.closeInspector()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Kill(func() { s.copyFiles(p) })
}

// copyFiles copies the files of a process that is being killed, so that changes by its remaining goroutines have no
// effect. The caller holds the lock.
func (s *System) copyFiles(p *Process) {
	for n, times := range s.handling[p] {
		if times > 0 {
			s.doubled[n]++
		}
	}
	s.interrupted()
	if p == s.main {
		s.main = nil
		s.done = s.copyCrashed(s.done)
	} else {
		s.second = nil
	}
	if s.main != nil || s.second != nil {
		return // another process has the file open
	}
	if s.away != "" {
		s.away = s.copyCrashed(s.away)
	} else {
		s.file = s.copyCrashed(s.file)
	}
}

// copyCrashed copies a database in the state in which a killed process left it, and returns the new path. The caller
// holds the lock.
func (s *System) copyCrashed(path string) string {
	to := s.newFile()
	if err := copyDatabase(path, to); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.failLocked("simulation", "%v", err)
	}
	return to
}

// interrupted records that running replays may repeat their current messages. The caller holds the lock.
func (s *System) interrupted() {
	for key, r := range s.replays {
		if key.epoch == s.epoch && !r.over {
			r.interrupted++
		}
	}
}

// KillAt kills a process at its n-th statement from now.
func (s *System) KillAt(p *Process, n int, after bool, pause time.Duration) {
	if p == nil {
		return
	}
	p.Database.At(n, after, func() {
		s.mu.Lock()
		current := p == s.main || p == s.second
		s.mu.Unlock()
		if current && !s.healed() {
			s.Kill(p, pause)
		}
	})
}

// Stop shuts a process down gracefully and restarts it after a pause.
func (s *System) Stop(p *Process, pause time.Duration) {
	if p == nil || p.Killed() {
		return
	}
	s.strike("stop of " + p.Name)
	s.note("%s is stopped", p.Name)
	s.mu.Lock()
	if p == s.main {
		s.main = nil
	} else {
		s.second = nil
	}
	s.mu.Unlock()
	begun := time.Now()
	if err := p.Stop(); err != nil {
		s.fail(promiseInOrder, "%s exited with %v", p.Name, err)
	}
	if took := time.Since(begun); took > 2*time.Minute {
		s.fail(promiseInOrder, "%s took %v to exit", p.Name, took)
	}
	s.startLater(p, pause)
}

func (s *System) startLater(p *Process, pause time.Duration) {
	s.later(pause, func() {
		s.mu.Lock()
		waits := s.away != "" || s.losing
		s.mu.Unlock()
		if waits { // the file will be moved back, or all processes will restart
			s.startLater(p, 10*time.Second)
			return
		}
		s.restart(p)
	})
}

// restart restarts a stopped process.
func (s *System) restart(p *Process) {
	s.note("%s starts", p.Name)
	if p.Work != nil {
		s.start()
	} else {
		s.startSecond()
	}
}

// later schedules a call of the function do after a pause. The life waits for the call.
func (s *System) later(pause time.Duration, do func()) {
	s.mu.Lock()
	s.pending++
	s.mu.Unlock()
	time.AfterFunc(pause, func() {
		do()
		s.mu.Lock()
		s.pending--
		s.mu.Unlock()
	})
}

// Cut cuts the connections of a process.
func (s *System) Cut(p *Process) {
	if p == nil {
		return
	}
	s.strike("cut of " + p.Name)
	s.note("the connections of %s are cut", p.Name)
	s.mu.Lock()
	s.interrupted()
	s.mu.Unlock()
	p.Cut()
}

// processes returns the running processes.
func (s *System) processes() (all []*Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range []*Process{s.main, s.second} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// Break applies a fault to the databases of the processes for a while.
func (s *System) Break(what string, f Fault, last time.Duration) {
	struck := s.processes()
	if len(struck) == 0 {
		return
	}
	s.strike("database " + what)
	s.note("the database %s for %v", what, last)
	var heal []func()
	for _, p := range struck {
		heal = append(heal, p.Database.Break(f))
	}
	mine := s.nextFault()
	s.mu.Lock()
	s.breaks++
	s.mu.Unlock()
	// If the database rejects writes, a process notices the fault at its next write, for example when it renews a
	// lease.
	noticed := 5 * time.Second
	if f.Writes {
		noticed = 90 * time.Second
	}
	if last > noticed+10*time.Second {
		s.later(noticed, func() { s.expectReady(struck, mine, false, "the database "+what) })
	}
	s.later(last, func() {
		s.note("the database has recovered")
		for _, end := range heal {
			end()
		}
		s.mu.Lock()
		s.breaks--
		s.repairedAt = time.Now()
		s.mu.Unlock()
		s.later(settled, func() { s.expectReady(struck, mine, true, "the database recovered") })
	})
}

func (s *System) nextFault() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faulty++
	return s.faulty
}

// expectReady checks the /readyz results of the processes. It ignores processes that have exited, and all processes after
// another fault of the database.
func (s *System) expectReady(of []*Process, fault int, ready bool, since string) {
	if s.Disturbances(time.Now().Add(-5*time.Minute), time.Now()) > 0 {
		return // messages that are not stored yet may be waiting for the broker
	}
	for _, p := range of {
		err := p.Ready()
		s.mu.Lock()
		same := s.faulty == fault && (ready || !s.ending) && (p == s.main || p == s.second) && p.ingest.Load() != nil && (!ready || s.away == "" && !s.losing && s.breaks == 0 && time.Since(s.repairedAt) >= settled)
		s.mu.Unlock()
		switch {
		case !same:
		case ready && err != nil:
			s.fail(promiseGoesOn, "%s is not ready two minutes after %s: %v", p.Name, since, err)
		case !ready && err == nil:
			s.fail(promiseReady, "%s is ready, although %s", p.Name, since)
		case !ready && !errors.Is(err, store.ErrUnavailable):
			s.fail(promiseReady, "unexpected state of %s after %s: %v", p.Name, since, err)
		default:
			s.strike("readiness checked")
		}
	}
}

// MoveAway moves the file of the archive away, and moves it back after a while.
func (s *System) MoveAway(last time.Duration) {
	struck := s.processes()
	if !s.fileInPlace() || len(struck) == 0 {
		return
	}
	s.closeInspector()
	s.quiesce(struck, func() {
		to, err := move(s.path(), filepath.Join(s.dir, "away"))
		if err != nil {
			return // the file does not exist yet
		}
		s.mu.Lock()
		s.away = to
		s.mu.Unlock()
	})
	if s.fileInPlace() {
		return
	}
	mine := s.nextFault()
	s.strike("file moved away")
	s.note("the file is moved away for %v", last)
	s.expectReady(struck, mine, false, "its file was moved away")
	s.later(last, func() {
		s.mu.Lock()
		from, path := s.away, s.file
		s.mu.Unlock()
		s.quiesce(s.processes(), func() {
			if _, err := move(from, filepath.Dir(path)); err != nil {
				s.fail("simulation", "%v", err)
			}
		})
		s.mu.Lock()
		s.away = ""
		s.mu.Unlock()
		s.note("the file is moved back")
		s.later(settled, func() { s.expectReady(struck, mine, true, "its file was moved back") })
	})
}

// fileInPlace reports whether the file of the archive is neither moved away nor lost.
func (s *System) fileInPlace() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away == "" && !s.losing
}

// quiesce calls the function do while no process executes a statement.
func (s *System) quiesce(processes []*Process, do func()) {
	for _, p := range processes {
		p.Database.working.Lock()
	}
	do()
	for _, p := range processes {
		p.Database.working.Unlock()
	}
}

// Backup backs up the archive.
func (s *System) Backup() {
	if !s.fileInPlace() {
		return
	}
	if _, err := s.openArchive(); err != nil {
		return
	}
	path := s.newFileLocked()
	s.mu.Lock()
	pool := s.inspector.pool
	s.mu.Unlock()
	if _, err := pool.Exec(`VACUUM INTO '` + path + `'`); err != nil {
		s.fail("simulation", "cannot create a backup: %v", err)
		return
	}
	s.mu.Lock()
	s.backup = path
	s.mu.Unlock()
	s.strike("backup")
	s.note("a backup is created")
}

func (s *System) newFileLocked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newFile()
}

// Lose deletes the file of the archive, or replaces it with the latest backup, while the processes run. After a while, the
// processes restart and use the current file.
func (s *System) Lose(restored bool, restart time.Duration) {
	struck := s.processes()
	if !s.fileInPlace() || len(struck) == 0 {
		return
	}
	s.mu.Lock()
	backup := s.backup
	s.mu.Unlock()
	if restored && backup == "" {
		return
	}
	s.closeInspector()
	lost := ""
	s.quiesce(struck, func() {
		path := s.path()
		to, err := move(path, s.newDir())
		if err != nil {
			return
		}
		lost = to
		if restored {
			if err := copyFile(backup, path); err != nil {
				s.fail("simulation", "%v", err)
			}
		}
		// The processes have acknowledged the messages in this copy, so the loss of these messages is permitted. The
		// processes must not acknowledge messages that they later write to the lost file.
		if err := copyDatabase(to, to+".then"); err != nil {
			s.fail("simulation", "%v", err)
		}
	})
	if lost == "" {
		return
	}
	s.mu.Lock()
	s.losing = true
	s.mu.Unlock()
	what := map[bool]string{false: "deleted", true: "replaced by a backup"}[restored]
	s.strike("file " + what)
	s.note("the file is %s", what)
	mine := s.nextFault()
	s.expectReady(struck, mine, false, "its file was "+what)
	if err := s.recordLost(lost+".then", restored); err != nil {
		s.fail("simulation", "cannot read the lost file: %v", err)
	}
	s.later(restart, func() {
		s.note("all processes restart with the current file")
		stopped := s.processes()
		for _, p := range stopped {
			s.mu.Lock()
			if p == s.main {
				s.main = nil
			} else {
				s.second = nil
			}
			s.mu.Unlock()
			if err := p.Stop(); err != nil {
				s.fail(promiseInOrder, "%s exited with %v", p.Name, err)
			}
		}
		s.mu.Lock()
		s.losing = false
		s.epoch++
		s.mu.Unlock()
		for _, p := range stopped {
			s.restart(p)
		}
	})
}

func (s *System) newDir() string { return filepath.Dir(s.newFileLocked()) }

// recordLost records the messages that the operators can no longer find. These messages were open in the lost file and are
// not in the current file.
func (s *System) recordLost(file string, restored bool) error {
	had, err := rowsIn(file)
	if err != nil {
		return err
	}
	has := map[int]bool{}
	if restored {
		now, err := rowsIn(s.path())
		if err != nil {
			return err
		}
		for _, r := range now {
			if r.known && r.open() {
				has[r.Order.N] = true
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range had {
		if r.known && r.open() && !has[r.Order.N] {
			s.gone[r.Order.N] = "lost with the file of the archive"
		}
	}
	return nil
}

// rowsIn returns the messages of an archive file without changing the file.
func rowsIn(path string) (map[failed.ID]Row, error) {
	copied := path + ".read"
	if err := copyDatabase(path, copied); err != nil {
		return nil, err
	}
	i, err := inspect(copied)
	if err != nil {
		return nil, err
	}
	defer i.close()
	return rowsOf(i.archive)
}

func (s *System) healed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

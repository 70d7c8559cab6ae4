package archive

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// These promises quote docs/failed-messages.md.
const (
	promiseStored    = "A message is in the archive before it is taken out of its queue; a message is acknowledged when the database has it, and at no other time"
	promiseReady     = "While the database cannot be used … `/readyz` answers 503 and names the database"
	promiseSoon      = "`reprise failed` and the console show the error after at most 10 s for a query and 20 s for a change"
	promiseGoesOn    = "goes on by itself when the database can be used again"
	promiseInOrder   = "The first Ctrl-C (SIGINT or SIGTERM) drains"
	promiseOnce      = "nothing is stored twice"
	promiseExactly   = "each byte of its body, all properties but delivery_mode, all headers with their exact types"
	promiseAnnounced = "lead to a page that repeats the filter in words and shows how many messages it selects. It acts on no more than that: if more are selected by the time you confirm, it changes nothing and shows the new number"
	promiseAudit     = "Every act is in the audit log, with who and when"
	promiseReplay    = "A replay publishes each message, waits for the confirm, and notes then that it was sent"
	promiseTwice     = "A crash in between, or a connection that is lost, repeats up to a hundred, each with the id it had, and loses none"
	promiseNoRepeat  = "Ctrl-C, and a replay that is cancelled, repeat none: what is on its way is waited for, for 15 s at most, and noted"
	promiseStates    = "failed, replaying, replayed or discarded; a replay ends as done, cancelled or stopped"
)

// settled is the time after a fault until every process has noticed its end. A process queries the database at least every 30 s.
const settled = 2 * time.Minute

// batch is the maximum number of messages that a crash repeats.
const batch = 100

// Kill kills a process and restarts it after a pause.
func (s *System) Kill(p *Process, pause time.Duration) {
	if p == nil || p.Killed() {
		return
	}
	s.strike("kill of " + p.Name)
	s.note("%s is killed", p.Name)
	s.killed(p)
	s.startLater(p, pause)
}

// killed kills a process and keeps the state of its files at the crash.
func (s *System) killed(p *Process) {
	s.blind()
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Kill(func() { s.keep(p) })
}

// keep copies the files of a process during its kill, so that later changes by the closing process have no effect. The caller
// holds the lock.
func (s *System) keep(p *Process) {
	for n, times := range s.handling[p] {
		if times > 0 {
			s.doubled[n]++
		}
	}
	s.interrupted()
	if p == s.main {
		s.main = nil
		s.done = s.crashed(s.done)
	} else {
		s.second = nil
	}
	if s.main != nil || s.second != nil {
		return // another process has the file open
	}
	if s.away != "" {
		s.away = s.crashed(s.away)
	} else {
		s.file = s.crashed(s.file)
	}
}

// crashed copies a database in the state that a killed process has left, and returns the new path. The caller holds the lock.
func (s *System) crashed(path string) string {
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

// Stop stops a process in order and restarts it after a pause.
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
		s.fail(promiseInOrder, "%s ended with %v", p.Name, err)
	}
	if took := time.Since(begun); took > 2*time.Minute {
		s.fail(promiseInOrder, "%s took %v to end", p.Name, took)
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
		s.again(p)
	})
}

// again restarts a stopped process.
func (s *System) again(p *Process) {
	s.note("%s starts", p.Name)
	if p.Work != nil {
		s.start()
	} else {
		s.startSecond()
	}
}

// later calls do after a pause. The life waits for the call.
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
	// A process notices at its next write that the database rejects writes. A claim is repeated at least every five seconds, and a process
	// waits for the reply to a commit.
	noticed := 5 * time.Second
	if f.Writes {
		noticed = 90 * time.Second
	}
	if last > noticed+10*time.Second {
		s.later(noticed, func() { s.demandReady(struck, mine, false, "the database "+what) })
	}
	s.later(last, func() {
		s.note("the database is as it was")
		for _, end := range heal {
			end()
		}
		s.mu.Lock()
		s.breaks--
		s.repairedAt = time.Now()
		s.mu.Unlock()
		s.later(settled, func() { s.demandReady(struck, mine, true, "the database was as before") })
	})
}

func (s *System) nextFault() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faulty++
	return s.faulty
}

// demandReady checks the result of /readyz of processes. It ignores processes that have exited, and all processes after
// another fault of the database.
func (s *System) demandReady(of []*Process, fault int, ready bool, since string) {
	if s.Disturbances(time.Now().Add(-5*time.Minute), time.Now()) > 0 {
		return // messages that are not yet stored may wait for the broker
	}
	for _, p := range of {
		err := p.Ready()
		s.mu.Lock()
		same := s.faulty == fault && (ready || !s.ending) && (p == s.main || p == s.second) && p.ingest.Load() != nil && (!ready || s.away == "" && !s.losing && s.breaks == 0 && time.Since(s.repairedAt) >= settled)
		s.mu.Unlock()
		switch {
		case !same:
		case ready && err != nil:
			s.fail(promiseGoesOn, "%s is not ready some minutes after %s: %v", p.Name, since, err)
		case !ready && err == nil:
			s.fail(promiseReady, "%s is ready although %s", p.Name, since)
		case !ready && !errors.Is(err, failed.ErrUnavailable):
			s.fail(promiseReady, "%s has not been ready since %s: %v", p.Name, since, err)
		default:
			s.strike("readiness told")
		}
	}
}

// MoveAway moves the file away and moves it back after a while.
func (s *System) MoveAway(last time.Duration) {
	struck := s.processes()
	if !s.untouched() || len(struck) == 0 {
		return
	}
	s.blind()
	s.quiesce(struck, func() {
		to, err := move(s.path(), filepath.Join(s.dir, "away"))
		if err != nil {
			return // the file does not exist yet
		}
		s.mu.Lock()
		s.away = to
		s.mu.Unlock()
	})
	if s.untouched() {
		return
	}
	mine := s.nextFault()
	s.strike("file moved away")
	s.note("the file is moved away for %v", last)
	s.demandReady(struck, mine, false, "its file was moved away")
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
		s.note("the file is put back")
		s.later(settled, func() { s.demandReady(struck, mine, true, "its file was put back") })
	})
}

// untouched reports whether the file is in its place.
func (s *System) untouched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away == "" && !s.losing
}

// quiesce calls do while no process executes a statement.
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
	if !s.untouched() {
		return
	}
	a, err := s.look()
	if err != nil {
		return
	}
	_ = a
	path := s.newFileLocked()
	s.mu.Lock()
	pool := s.inspector.pool
	s.mu.Unlock()
	if _, err := pool.Exec(`VACUUM INTO '` + path + `'`); err != nil {
		s.fail("simulation", "a backup: %v", err)
		return
	}
	s.mu.Lock()
	s.backup = path
	s.mu.Unlock()
	s.strike("backup")
	s.note("a backup is made")
}

func (s *System) newFileLocked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newFile()
}

// Lose deletes the file of the archive, or replaces it by the latest backup, while the processes run. After a while, the
// processes restart and use the current file.
func (s *System) Lose(restored bool, restart time.Duration) {
	struck := s.processes()
	if !s.untouched() || len(struck) == 0 {
		return
	}
	s.mu.Lock()
	backup := s.backup
	s.mu.Unlock()
	if restored && backup == "" {
		return
	}
	s.blind()
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
		// The current content was acknowledged and may be lost with the file. The processes must not acknowledge messages that
		// they write to the file later.
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
	s.demandReady(struck, mine, false, "its file was "+what)
	if err := s.lostWith(lost+".then", restored); err != nil {
		s.fail("simulation", "reading the lost file: %v", err)
	}
	s.later(restart, func() {
		s.note("all processes are restarted, to use what is there")
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
				s.fail(promiseInOrder, "%s ended with %v", p.Name, err)
			}
		}
		s.mu.Lock()
		s.losing = false
		s.epoch++
		s.mu.Unlock()
		for _, p := range stopped {
			s.again(p)
		}
	})
}

func (s *System) newDir() string { return filepath.Dir(s.newFileLocked()) }

// lostWith records the messages that the operators can no longer find. These messages were open in the lost file and are not in
// the current file.
func (s *System) lostWith(file string, restored bool) error {
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
			s.gone[r.Order.N] = "lost with its file"
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

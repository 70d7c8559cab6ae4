package docstest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// deadline is the maximum duration of a command. It is long because the first commands may compile all packages.
const deadline = 5 * time.Minute

// reader runs the commands of one document, with a separate home directory, clone and shell.
type reader struct {
	t      *testing.T
	dir    string // directory of all files of the reader
	source string // repository to clone
	bin    string // directory of the program reprise
	clone  string
	steps  []step
	files  []file
}

// read runs the steps in order until a step fails. The steps must not declare queues in the broker of the reader.
func (r *reader) read() {
	r.t.Helper()
	home := filepath.Join(r.dir, "home")
	must(r.t, os.MkdirAll(home, 0o755))
	r.shareCaches(home)
	script := filepath.Join(r.dir, "script")
	must(r.t, os.WriteFile(script, []byte(r.script()), 0o644))
	progressRead, progress, err := os.Pipe()
	must(r.t, err)
	defer progressRead.Close()
	self, err := os.Executable()
	must(r.t, err)
	shell := exec.Command(self, script)
	shell.Dir = r.clone
	shell.ExtraFiles = []*os.File{progress}
	shell.Env = []string{
		isolated + "=1", "HOME=" + home, "USER=root", "LANG=C.UTF-8", "TERM=dumb", "TMPDIR=" + os.TempDir(),
		"PATH=" + r.bin + ":" + os.Getenv("PATH"),
	}
	var output bytes.Buffer
	shell.Stdout, shell.Stderr = &output, &output
	shell.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		shell.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		shell.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		shell.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := shell.Start(); err != nil {
		r.t.Skipf("cannot create namespaces: %v (make test can)", err)
	}
	must(r.t, progress.Close())
	defer func() {
		_ = shell.Process.Kill() // kills all processes of the reader
		_ = shell.Wait()
		if r.t.Failed() && output.Len() > 0 {
			r.t.Logf("output of the shell:\n%s", &output)
		}
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(progressRead); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for n, s := range r.steps {
		began := time.Now()
		select {
		case line, ok := <-lines:
			if status, _ := strconv.Atoi(line); !ok || status != 0 {
				r.t.Errorf("line %d: status %s: %s\n%s", s.line, line, s.text, r.printed(n))
				return
			}
		case <-time.After(deadline):
			r.t.Errorf("line %d: timed out after %s: %s\n%s", s.line, deadline, s.text, r.printed(n))
			return
		}
		r.t.Logf("line %d: %.1f s: %s", s.line, time.Since(began).Seconds(), s.text)
		if len(s.output) == 0 {
			continue
		}
		printed := r.printed(n)
		if lacks := missing(s.output, printed); len(lacks) > 0 {
			r.t.Errorf("line %d: documented lines were not printed:\n  %s\n%s\n%s", s.line, strings.Join(lacks, "\n  "), s.text, printed)
		}
	}
	for queue := range lines { // the shell has exited
		r.t.Errorf("the commands declared queue %q in the broker of the reader on %s (use the default port of the embedded broker)", queue, ownBroker)
	}
}

// printed returns the output of step n so far. In a block that is not a console block, this includes the output of the
// block's earlier steps.
func (r *reader) printed(n int) string {
	var all strings.Builder
	for i := 0; i <= n; i++ {
		if i < n && (r.steps[i].block != r.steps[n].block || r.steps[n].block.lang == "console") {
			continue
		}
		for _, stream := range []string{"out", "err"} {
			text, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprintf("%d.%s", i, stream)))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				r.t.Error(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}

// script returns the commands of the reader as a shell script. It writes the status of each step to file descriptor 3.
// With job control, each command has its own process group, which can be interrupted as with Ctrl-C.
func (r *reader) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "set -m\nD=%q\nmkfifo $D/keyboard; exec 9<>$D/keyboard\n", r.dir)
	b.WriteString(`running=()
prints() { # FILE TEXT PID: waits until the text is in the output
	until grep -qF -- "$2" "$1.out" "$1.err"; do kill -0 -- "-$3" 2>/dev/null || grep -qF -- "$2" "$1.out" "$1.err" || return 1; sleep 0.1; done
}
interrupt() { # interrupts all running commands, the last first; go run does not return their status
	local i
	for ((i = ${#running[@]} - 1; i >= 0; i--)); do
		kill -INT -- "-${running[i]}" 2>/dev/null
		wait "${running[i]}"
	done
	running=()
}
`)
	b.WriteString("save() {\n:\n")
	for _, f := range r.files {
		if f.name != "" {
			fmt.Fprintf(&b, "cp %q %q\n", f.path, f.name)
		}
	}
	b.WriteString("}\n")
	for n, s := range r.steps {
		for _, f := range r.files {
			if f.line < s.line {
				fmt.Fprintf(&b, "export BLOCK_%s=%q\n", strings.ToUpper(f.lang), f.path)
			}
		}
		redirect := fmt.Sprintf(`>"$D/%d.out" 2>"$D/%[1]d.err"`, n)
		if s.until != "" {
			fmt.Fprintf(&b, ": %s\n{\n%s\n} %[1]s <&9 3>&- & running+=($!)\nprints $D/%[3]d %[4]q $!; s=$?\n", redirect, s.text, n, s.until)
			if n+1 == len(r.steps) || r.steps[n+1].block != s.block { // all commands of the block have started
				b.WriteString("[ $s != 0 ] || interrupt\n")
			}
		} else {
			fmt.Fprintf(&b, "{\n%s\n} %s </dev/null 3>&-; s=$?\n", s.text, redirect)
		}
		b.WriteString("echo $s >&3; [ $s = 0 ] || exit\n")
	}
	return b.String()
}

// file is a block that contains a file, for use in setup comments.
type file struct {
	line       int
	lang, path string
	name       string // in a comment at its beginning, or ""
}

var fileName = regexp.MustCompile(`^(?:<\?php\n)?(?:#|//) ([\w.-]+\.\w+)\n`)

// nameOf returns the name of a file that its first comment contains.
func nameOf(text string) string {
	if found := fileName.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// isolated is set in the environment of the first process in a reader's namespaces.
const isolated = "DOCSTEST_ISOLATED"

// isolate is the first process in the namespaces. It activates the loopback interface, mounts /proc, starts the broker of the
// reader and runs the script. At the end, it writes the names of the queues of this broker to file descriptor 3. All other
// processes exit with this process.
func isolate(script string) int {
	fail := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return fail("socket", err)
	}
	up := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP}
	copy(up.name[:], "lo")
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&up))); errno != 0 {
		return fail("loopback", errno)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fail("private mounts", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fail("/proc", err)
	}
	own, err := serveOwnBroker()
	if err != nil {
		return fail("broker on "+ownBroker, err)
	}
	_ = os.Unsetenv(isolated)
	shell := exec.Command("bash", script)
	shell.Stdout, shell.Stderr = os.Stdout, os.Stderr
	progress := os.NewFile(3, "progress")
	shell.ExtraFiles = []*os.File{progress}
	if err := shell.Run(); err != nil {
		return fail("bash", err)
	}
	for _, q := range own.Queues() {
		fmt.Fprintln(progress, q.Name)
	}
	return 0
}

// ownBroker is the address of a broker with the standard port and login, as many readers have one.
const ownBroker = "127.0.0.1:5672"

// serveOwnBroker starts the broker of the reader. The commands of the documents must not use it.
func serveOwnBroker() (*broker.Broker, error) {
	l, err := net.Listen("tcp", ownBroker)
	if err != nil {
		return nil, err
	}
	b, err := broker.New(broker.Config{})
	if err != nil {
		return nil, err
	}
	go b.Serve(l)
	return b, nil
}

// shareCaches links the caches into a new home directory, because downloading, compiling and unpacking their files again would
// take minutes.
func (r *reader) shareCaches(home string) {
	cache := output(r.t, "", "go", "env", "GOMODCACHE")
	write := func(path, text string) {
		path = filepath.Join(home, path)
		must(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(r.t, os.WriteFile(path, []byte(text), 0o644))
	}
	write(".config/go/env", strings.Join([]string{
		"GOCACHE=" + output(r.t, "", "go", "env", "GOCACHE"), "GOMODCACHE=" + cache,
		"GOPROXY=file://" + filepath.Join(cache, "cache", "download"), "GONOPROXY=github.com/reprisemq", "GOSUMDB=off", "GOTOOLCHAIN=local",
		"GOFLAGS=-trimpath", // makes compiled packages independent of the path of the clone
		"",
	}, "\n"))
	write(".gitconfig", fmt.Sprintf("[url %q]\n\tinsteadOf = https://github.com/reprisemq/reprise\n[safe]\n\tdirectory = *\n", "file://"+r.source))
	modules, err := filepath.Abs("../interop/node/node_modules")
	must(r.t, err)
	must(r.t, os.Symlink(modules, filepath.Join(home, ".node_modules"))) // the programs in JavaScript require amqplib
	for version, root := range rabbits() {
		link := filepath.Join(home, ".cache/reprise/rabbitmq", version)
		must(r.t, os.MkdirAll(filepath.Dir(link), 0o755))
		must(r.t, os.Symlink(root, link))
	}
}

// rabbits returns the releases that scripts/rabbitmq has unpacked on this machine, by version.
func rabbits() map[string]string {
	root := os.Getenv("RABBIT_ROOT")
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil
		}
		root = filepath.Join(cache, "reprise", "rabbitmq")
	}
	found := map[string]string{}
	for _, b := range testkit.RabbitMQs() {
		version := b.Version
		dir := filepath.Join(root, version)
		if _, err := os.Stat(filepath.Join(dir, ".installed")); err == nil {
			found[version] = dir
		}
	}
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// output runs a command and returns its output.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	must(t, err)
	return strings.TrimSpace(string(out))
}

package interop

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/testkit"
)

// run runs a third-party program until it exits, and returns its output.
func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, stderr.Bytes())
	}
	return string(out)
}

// The amqp-tools of Debian use the C client librabbitmq.
func TestAMQPToolsPublishAndConsume(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("amqp-publish"); err != nil {
		t.Skip("amqp-tools not found (run apt-get install amqp-tools, or make test)")
	}
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		q := testkit.Name(t, "q")
		b.URL = strings.TrimSuffix(b.URL, "/") // with the slash, the URL would specify the virtual host ""
		if got := run(t, "", "amqp-declare-queue", "-u", b.URL, "-d", "-q", q); strings.TrimSpace(got) != q {
			t.Errorf("declared: got %q, want %q", got, q)
		}
		run(t, "", "amqp-publish", "-u", b.URL, "-r", q, "-p", "-C", "text/plain", "-b", "first")
		run(t, "second\nthird\n", "amqp-publish", "-u", b.URL, "-r", q, "-l")
		if got := run(t, "", "amqp-get", "-u", b.URL, "-q", q); got != "first" {
			t.Errorf("amqp-get: got %q, want %q", got, "first")
		}
		if got := run(t, "", "amqp-consume", "-u", b.URL, "-q", q, "-c", "2", "cat"); got != "second\nthird\n" {
			t.Errorf("amqp-consume: got %q, want %q", got, "second\nthird\n")
		}
		if got := run(t, "", "amqp-delete-queue", "-u", b.URL, "-q", q); strings.TrimSpace(got) != "0" {
			t.Errorf("messages of the deleted queue: got %q, want 0", got)
		}
	})
}

// node/retry.js sends a message through a wait queue with the client amqplib.
func TestNodeClientRetries(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("Node.js not found (run apt-get install nodejs npm, or make test)")
	}
	if _, err := os.Stat(filepath.Join("node", "node_modules", "amqplib")); err != nil {
		t.Skip("npm package amqplib not found (run npm ci in internal/interop/node, or make test)")
	}
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		got := run(t, "", "node", filepath.Join("node", "retry.js"), b.URL, testkit.Name(t, "q"))
		if want := "attempt 1\nattempt 2\nattempt 3\ndone\n"; got != want {
			t.Errorf("output: got %q, want %q", got, want)
		}
	})
}

// python is the Python of Debian, which has python3-pika. PATH may contain a different Python before it.
const python = "/usr/bin/python3"

// python/retry.py sends a message through a wait queue with the client pika.
func TestPythonClientRetries(t *testing.T) {
	t.Parallel()
	if exec.Command(python, "-c", "import pika").Run() != nil {
		t.Skip("pika not found (run apt-get install python3-pika, or make test)")
	}
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		got := run(t, "", python, filepath.Join("python", "retry.py"), strings.TrimSuffix(b.URL, "/"), testkit.Name(t, "q"))
		if want := "attempt 1\nattempt 2\nattempt 3\ndone\nreturned 312\n"; got != want {
			t.Errorf("output: got %q, want %q", got, want)
		}
	})
}

// Invalid input from one program does not affect another program that is connected at the same time.
func TestBrokerSurvivesInvalidInput(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("amqp-publish"); err != nil {
		t.Skip("amqp-publish not found (run apt-get install amqp-tools, or make test)")
	}
	b := testkit.Embedded(t)
	b.URL = strings.TrimSuffix(b.URL, "/")
	_, host, _ := strings.Cut(b.URL, "@")
	for _, garbage := range []string{"GET / HTTP/1.0\r\n\r\n", "AMQP\x00\x00\x09\x01garbage after the handshake", "\x00"} {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(garbage)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "", "amqp-declare-queue", "-u", b.URL, "-q", "q")
}

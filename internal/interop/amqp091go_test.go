package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reprisemq/reprise/internal/testkit"
)

// managementURL is the URL of the management API that the tests of amqp091-go use. The port is fixed in these tests.
const managementURL = "http://127.0.0.1:15672"

// ctlVariable is the environment variable that makes this program act as the rabbitmqctl of a test of amqp091-go.
const ctlVariable = "REPRISE_INTEROP_RABBITMQCTL"

func TestMain(m *testing.M) {
	if os.Getenv(ctlVariable) == "" {
		os.Exit(testkit.Waiting{M: m}.Run())
	}
	if err := rabbitmqctl(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestAMQP091GoSuite runs the unchanged integration tests of the module amqp091-go against `reprise broker
// --management`. A skipped test is an error. The tests take two and a half minutes, and mostly wait.
//
// They run on one processor. TestDeclareArgsRejectToDeadLetterQueue checks ten times without a pause whether its
// consumer has rejected a message. On two processors, the ten checks sometimes finish before the rejection (3 times in
// 500).
func TestAMQP091GoSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short (takes two and a half minutes)")
	}
	t.Parallel()
	reprise := filepath.Join(t.TempDir(), "reprise")
	command(t, "go", "build", "-o", reprise, "github.com/reprisemq/reprise/cmd/reprise")
	url := startBroker(t, reprise, "broker", "--memory", "--memory-limit", "64MiB",
		"--listen", "127.0.0.1:0", "--management", strings.TrimPrefix(managementURL, "http://"))

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-tags", "integration", "-count", "1", "-timeout", "8m",
		"github.com/rabbitmq/amqp091-go")
	cmd.Env = append(os.Environ(), "AMQP_URL="+url, "RABBITMQ_RABBITMQCTL_PATH="+self, ctlVariable+"=yes", "GOMAXPROCS=1")
	out, err := cmd.Output()
	ended := make(map[string]string)
	log := make(map[string]*strings.Builder)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var event struct{ Action, Test, Output string }
		if d.Decode(&event) != nil {
			break
		}
		switch event.Action {
		case "pass", "fail", "skip":
			if event.Test != "" {
				ended[event.Test] = event.Action
			}
		case "output":
			if log[event.Test] == nil {
				log[event.Test] = new(strings.Builder)
			}
			log[event.Test].WriteString(event.Output)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ended)) {
		if how := ended[name]; how != "pass" {
			t.Errorf("%s: got %s, want pass\n%s", name, how, log[name])
		}
	}
	if err != nil {
		t.Errorf("go test failed: %v\n%s", err, log[""])
	}
	for _, name := range []string{"TestIntegrationOpenClose", "TestConnectionRecoveryPublish", "TestConnection_Close_WhenMemoryAlarmIsActive"} {
		if ended[name] == "" {
			t.Errorf("%s did not run", name)
		}
	}
	t.Logf("tests: %d", len(ended))
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// startBroker starts a broker that prints its URL, and stops it at the end of the test.
func startBroker(t *testing.T, name string, args ...string) (url string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("broker exited with %v\n%s", err, stderr.Bytes())
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("cannot read the URL of the broker: %v", err)
	}
	return strings.TrimSpace(line)
}

// rabbitmqctl simulates `rabbitmqctl set_vm_memory_high_watermark`, with which a test of amqp091-go raises or clears a
// memory alarm. The memory limit of a running broker is fixed, so rabbitmqctl fills a queue beyond the limit, or
// deletes the queue.
func rabbitmqctl(args []string) error {
	const queue = "/api/queues/%2F/interop.filling"
	switch {
	case slices.Equal(args, []string{"set_vm_memory_high_watermark", "0.0001"}):
		if status, answer, err := call("PUT", queue, `{"durable":true}`); err != nil || status/100 != 2 {
			return fmt.Errorf("cannot declare queue: status %d: %s: %w", status, answer, err)
		}
		message := `{"properties":{},"routing_key":"interop.filling","payload_encoding":"string","payload":"` + strings.Repeat("x", 8<<20) + `"}`
		for range 9 { // with a limit of 64 MiB, the broker refuses the last message
			status, answer, err := call("POST", "/api/exchanges/%2F/amq.default/publish", message)
			switch {
			case err != nil:
				return err
			case strings.Contains(answer, "publishing is blocked"):
				return nil
			case status != http.StatusOK:
				return fmt.Errorf("cannot publish: status %d: %s", status, answer)
			}
		}
		return errors.New("no memory alarm after 72 MiB")
	case slices.Equal(args, []string{"set_vm_memory_high_watermark", "0.4"}):
		_, _, err := call("DELETE", queue, "")
		return err
	}
	return fmt.Errorf("unknown command %q", args)
}

func call(method, path, body string) (status int, answer string, err error) {
	r, err := http.NewRequest(method, managementURL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.SetBasicAuth("guest", "guest")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	return a.StatusCode, string(text), err
}

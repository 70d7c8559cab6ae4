package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// userModule is a module of a user: a program that embeds a broker in memory, and a test with reprisetest.
var userModule = map[string]string{
	"go.mod": `module example.com/shop

go 1.26.0

require github.com/reprisemq/reprise v0.0.0

replace github.com/reprisemq/reprise => REPOSITORY
`,
	"main.go": `package main

import (
	"context"
	"fmt"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/topology"
)

func main() {
	b, err := broker.New(broker.Config{})
	if err != nil {
		panic(err)
	}
	client, err := reprise.Dial(context.Background(), "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
	fmt.Println(client, err, topology.Buckets{})
}
`,
	"main_test.go": `package main

import (
	"testing"

	"github.com/reprisemq/reprise/reprisetest"
)

func TestShop(t *testing.T) { reprisetest.Run(t, func(*testing.T, *reprisetest.Broker) {}) }
`,
}

// userSums lists the modules in the go.sum of a user: the client, and the libraries that the tests of the imported packages import.
var userSums = []string{
	"github.com/google/go-cmp", "github.com/rabbitmq/amqp091-go", "github.com/sony/gobreaker/v2", "go.uber.org/goleak", "pgregory.net/rapid",
}

// A program that imports the library, topology, reprisetest and a broker in memory requires only one other module.
func TestUsersRequireOneModule(t *testing.T) {
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range userModule {
		content = strings.ReplaceAll(content, "REPOSITORY", repository)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	modules := func(text, pattern string) []string {
		var all []string
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, match[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}

	run("mod", "tidy")
	run("build", "-o", "shop", ".")
	run("vet", ".")
	client := []string{amqpClient, Module}
	if got := modules(read("go.mod"), `(?m)^(?:require |\t)(\S+) v`); !slices.Equal(got, client) {
		t.Errorf("requirements in go.mod: got %q, want %q", got, client)
	}
	if got := modules(run("version", "-m", "shop"), `(?m)^\tdep\t(\S+)`); !slices.Equal(got, client) {
		t.Errorf("modules of the binary: got %q, want %q", got, client)
	}
	if got := modules(read("go.sum"), `(?m)^(\S+) `); !slices.Equal(got, userSums) {
		t.Errorf("modules in go.sum: got %q, want %q", got, userSums)
	}
	if lines := strings.Count(read("go.sum"), "\n"); lines > 2*len(userSums) {
		t.Errorf("lines of go.sum: got %d, want at most two per module", lines)
	}
}

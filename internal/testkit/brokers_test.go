package testkit

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Each broker has the reported name and version.
func TestEach(t *testing.T) {
	Each(t, func(t *testing.T, b Target) {
		conn, err := amqp.Dial(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		version, _ := conn.Properties["version"].(string)
		if b.IsRabbitMQ && !strings.HasPrefix(version, b.Version+".") {
			t.Errorf("%s: got version %q, want %s", b.Name, version, b.Version)
		}
	})
}

func TestBrokersReturnsBrokersOfEach(t *testing.T) {
	for _, version := range testedVersions() {
		t.Setenv(variable(version), "amqp://"+version+"/")
	}
	var want, got []string
	t.Run("each", func(t *testing.T) {
		Each(t, func(_ *testing.T, b Target) { want = append(want, b.Name) })
	})
	for _, b := range Brokers(t) {
		got = append(got, b.Name)
	}
	if !slices.Equal(got, want) || len(got) != 1+len(testedVersions()) || len(got) < 3 {
		t.Errorf("Brokers: got %v, want the brokers of Each: %v", got, want)
	}
}

func TestProxyCutsBrokerConnection(t *testing.T) {
	p := NewProxy(t, Embedded(t).URL)
	lost := p.CutBeforeFrame(ToClient, 4) // frame 4 is channel.open-ok, after start, tune and open-ok
	conn, err := amqp.Dial(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Channel(); err == nil {
		t.Error("channel was opened although the response was cut off")
	}
	wait(t, lost)
}

// Each line of the list of versions has a version, a use, suites, a package of the version, and the hash of the package.
func TestListOfVersions(t *testing.T) {
	line := regexp.MustCompile(`^(\d+\.\d+) +(test|-) +[a-z,]+ +(\S+) +[0-9a-f]{64}\n$`)
	for text := range strings.Lines(versions) {
		if m := line.FindStringSubmatch(text); text[0] != '#' && (m == nil || !strings.HasPrefix(m[3], m[1]+".")) {
			t.Errorf("rabbitmq.txt: %q is not a version, test or -, suites, package and SHA-256", text)
		}
	}
	if tested := testedVersions(); !slices.Contains(tested, "3.10") || !slices.Contains(tested, "4.3") {
		t.Errorf("tested versions: got %v, want at least 3.10 and 4.3", tested)
	}
}

// Package config reads the file of `reprise up`: which queues are consumed, by
// what programs and services, and how often and when a failed message is tried
// again.
//
//	broker: amqp://user:${PASSWORD}@rabbit:5672/   # left out: an embedded broker
//	workers:
//	  - queue: orders
//	    http: http://127.0.0.1:8080/orders
//	    attempts: 10
//	    backoff: {initial: 1s, factor: 2, max: 1h}
//	  - queue: thumbnails
//	    exec: [./thumbnail.py, --fast]
//
// docs/reprise.example.yaml shows every key with its meaning and default.
//
// # Mistakes
//
// A file is either understood completely or refused. What is wrong with it is
// reported all at once, as [Problems]: each with line, column, the line itself
// and what to write instead. Nothing is guessed: unknown keys, a number where a
// text belongs, a duration without a unit are mistakes.
//
// # YAML
//
// The language is YAML 1.2, minus what makes a small file surprising:
//
//	anchors and aliases   work: backoff: &slow {fixed: 5m} … backoff: *slow
//	merge keys (<<)       refused: an alias for a whole value says the same
//	tags (!!str)          refused
//	a key twice           refused
//	several documents     refused
//	an empty file         refused: there is nothing to do
//
// ${NAME} stands for an environment variable in the values that tend to hold
// secrets or differ between machines: broker, the url and headers of http, the
// env of exec, the URLs of stores and of the management API, the URLs and secrets of webhooks. $${ is a plain ${. A variable
// that is not set is a mistake.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/reprisemq/reprise"
)

// DefaultListen is where the embedded broker listens, and DefaultData where it keeps its data, from where the file is.
const (
	DefaultListen = "127.0.0.1:5672"
	DefaultData   = "reprise-data"
)

// inMemory is the value of data that stands for no directory.
const inMemory = "memory"

// maxFile is the size past which a file cannot be what was meant.
const maxFile = 1 << 20

// Config is a file that was understood.
type Config struct {
	Broker  string // URL; "" for an embedded broker
	Listen  string // host:port of the embedded broker; "" with a Broker
	Data    string // directory of the embedded broker; "" for one in memory, and with a Broker
	Metrics string // host:port where metrics and health are served; "" for nowhere
	Workers []Worker

	Silent bool // workers do not announce themselves

	Archive *Archive // nil: failed messages stay in their queues
	Console *Console // nil: there is none
	Notify  *Notify  // nil: nobody is told

	name     string
	excerpts excerpts
}

// Worker is one queue with its handler.
type Worker struct {
	reprise.WorkerConfig // all but the Handler, and what comes of Duplicates

	// One of the two is set.
	HTTP *HTTP
	Exec *Exec

	Duplicates *Duplicates // nil: they are handled
}

// HTTP is a handler that is called over HTTP.
type HTTP struct {
	URL     string
	Timeout time.Duration // 0 for the handler's default
	Headers []Pair
	Pause   bool // a Retry-After is for the whole queue

	Secrets []string // values of variables, which nothing is to show
}

// Exec is a handler that is a program.
type Exec struct {
	Command []string
	Dir     string        // the file's directory unless it says otherwise
	Env     []Pair        // besides the environment of this process
	Timeout time.Duration // 0 for none
	At      Position      // of the command, for what only a start can tell
}

// Pair is a name with its value, in the order of the file.
type Pair struct{ Name, Value string }

// Load reads the file at path. A mistake in it is returned as *[Problems].
func Load(path string) (*Config, error) {
	data, lookup, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, lookup)
}

// readFile returns the text of a file, and what gives environment variables.
func readFile(path string) (data []byte, lookup func(string) (string, bool), err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no file %s: write one, or name another with -c FILE", path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
	case len(data) > maxFile:
		return nil, nil, fmt.Errorf("%s is larger than %d bytes: this is not a configuration of reprise", path, maxFile)
	}
	return data, os.LookupEnv, nil
}

// Parse reads the text of a file. The name is for messages and tells which
// directory relative paths start from; lookup gives environment variables.
func Parse(name string, data []byte, lookup func(string) (string, bool)) (*Config, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // some editors begin a file so
	d := newDecoder(name, data, lookup)
	c := d.file(data)
	if len(d.problems) > 0 {
		return nil, d.sorted()
	}
	return c, nil
}

func newDecoder(name string, data []byte, lookup func(string) (string, bool)) *decoder {
	return &decoder{name: name, excerpts: excerpts{source: splitLines(data)}, lookup: lookup, dir: filepath.Dir(name)}
}

// file decodes the top of the file. What it returns is meaningless when there
// are problems.
func (d *decoder) file(data []byte) *Config {
	c := &Config{name: d.name}
	root, ok := d.document(data)
	c.excerpts = d.excerpts
	if !ok {
		return c
	}
	f, ok := root.fields(theFile)
	if !ok {
		return c
	}
	defer f.finish()

	var ports ports
	external := read(f, "broker", &c.Broker, value.brokerURL)
	if external {
		f.refuse("is for the embedded broker, and broker names another one: remove one of the two", "listen", "data")
	} else {
		c.Listen, c.Data = DefaultListen, filepath.Join(d.dir, DefaultData)
		at := Position{}
		f.with("listen", func(x value) {
			at = x.at
			c.Listen, _ = x.listenAddr()
		})
		ports.add("listen", c.Listen, at)
		read(f, "data", &c.Data, value.dataDir)
	}
	f.with("metrics", func(x value) {
		c.Metrics, _ = openAddr("127.0.0.1:9090")(x)
		ports.add("metrics", c.Metrics, x.at)
	})
	f.with("announce", func(x value) {
		yes, ok := x.boolean()
		c.Silent = ok && !yes
	})
	f.desk(c, !external)
	if c.Console != nil {
		ports.add("console", c.Console.Listen, c.Console.At)
	}
	ports.check(d)
	e := exchanges{embedded: !external}
	f.with("exchanges", e.decode)
	if !f.with("workers", func(x value) { c.Workers = x.workers(&e) }) {
		f.missing("there are no workers: write at least\nworkers:\n  - queue: NAME\n    exec: [PROGRAM]", "workers")
		return c
	}
	e.finish()
	return c
}

// Package config parses the file of `reprise up`. The file specifies the queues to consume, the programs and services
// that handle the messages, and the number and delays of the retries.
//
//	broker: amqp://user:${PASSWORD}@rabbit:5672/   # default: an embedded broker
//	workers:
//	  - queue: orders
//	    http: http://127.0.0.1:8080/orders
//	    attempts: 10
//	    backoff: {initial: 1s, factor: 2, max: 1h}
//	  - queue: thumbnails
//	    exec: [./thumbnail.py, --fast]
//	  - queue: charges
//	    process: [python3, charge.py]
//
// docs/reprise.example.yaml shows every key with its meaning and default.
//
// # Errors
//
// The package accepts only files without errors. It reports all errors of a file together, as [Problems]. Each problem
// has a line, a column, an excerpt of the line and a suggestion. The package does not guess: unknown keys, a number
// instead of a string and a duration without a unit are errors.
//
// # YAML
//
// The language is YAML 1.2. The package refuses most features whose effects are easy to miss:
//
//	anchors and aliases   work: backoff: &slow {fixed: 5m} … backoff: *slow
//	merge keys (<<)       refused: use an alias for a whole value
//	tags (!!str)          refused
//	duplicate keys        refused
//	several documents     refused
//	an empty file         refused: it has no workers
//
// # References
//
// In every value, ${NAME} is the value of an environment variable, ${NAME:-default} has a default for a variable that is
// unset or empty, ${file:PATH} is the content of a file, without the line break at its end, and $${ is a literal ${. An
// unset variable and an empty file are errors. A number, a boolean or a duration can come from a reference, too. The
// package percent-encodes references in the user and the password of a URL. Problems show the reference, not its content.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/limit"
	"github.com/reprisemq/reprise/outbox"
)

// DefaultListen is the default listening address of the embedded broker. Its port is not RabbitMQ's port 5672, so that a
// command without a URL cannot reach a RabbitMQ of the machine. DefaultData is the broker's default data directory, relative
// to the directory of the file.
const (
	DefaultListen = "127.0.0.1:5600"
	DefaultData   = "reprise-data"
)

// inMemory is the value of the data key for a broker without a data directory.
const inMemory = "memory"

// maxFile is the maximum size of a file. A larger file is probably a mistake.
const maxFile = 1 << 20

// Config is the content of a valid file.
type Config struct {
	Broker   string   // URL; "": an embedded broker
	BrokerAt Position // position of the URL, for startup errors
	Listen   Listen   // of the embedded broker; zero if Broker is set
	Data     string   // directory of the embedded broker; "" for a broker in memory, or if Broker is set
	Metrics  string   // host:port of the metrics and health endpoint; "": none
	Workers  []Worker

	Silent bool // workers do not announce themselves

	Archive *Archive // nil: failed messages stay in their queues
	Console *Console // nil: no console
	Notify  *Notify  // nil: no notifications

	Outbox *Outbox // nil: no outbox
	Cron   []Cron  // nil without an outbox

	Schedule *outbox.IntakeConfig // nil: programs cannot publish to an exchange of the outbox

	Telemetry *Telemetry // nil: the environment decides

	// Dir is the directory of the first file, in which the embedded broker has its default data directory.
	Dir string

	report  *report
	sources map[string]string // top-level keys and their contents
}

// Listen configures the listener of the embedded broker.
type Listen struct {
	Addr  string // host:port
	Users []Pair // names and passwords; empty: the user guest, from this machine only

	CertFile, KeyFile string // "": without TLS
	CACertFile        string // authorities of client certificates; "": none

	At Position // position of the address, for startup errors
}

// Worker configures the worker of one queue, with its handler.
type Worker struct {
	reprise.WorkerConfig // without the Handler and the middleware for Duplicates

	// One of these is set.
	HTTP    *HTTP
	Exec    *Exec
	Process *Process

	Duplicates *Duplicates   // nil: duplicates are processed
	Results    *Results      // nil: handlers have no results
	Shared     *limit.Config // limit of all processes together; nil: none

	// Source is equal for workers that are configured equally, also by the variables and files to which they refer, and whose
	// processes run the same files.
	Source string
}

// HTTP configures a handler that sends messages to an HTTP service.
type HTTP struct {
	URL     string
	Timeout time.Duration // 0: the default of the handler
	Headers []Pair
	Pause   bool // a Retry-After applies to the whole queue

	CACertFile string   // path of the authorities of the service's certificate; "": the authorities of the system
	CertFile   string   // path of the client certificate; "": none
	KeyFile    string   // path of its private key
	At         Position // position of the last of these paths, for startup errors
	Secrets    []string // values of variables that must not appear in output
}

// Exec configures a handler that runs a program.
type Exec struct {
	Command []string
	Dir     string        // default: the directory of the file
	Env     []Pair        // in addition to the environment of this process
	Timeout time.Duration // 0: none
	At      Position      // position of the command, for startup errors
}

// Process configures a handler that passes messages to programs that keep running.
type Process struct {
	Exec        // Timeout 0: the default of the handler
	Processes   int
	MaxMessages int   // 0: no limit
	MaxMemory   int64 // in bytes; 0: no limit
	Pause       bool  // retry_after applies to the whole queue
}

// Pair is a name with a value. A slice of pairs keeps the order of the file.
type Pair struct{ Name, Value string }

// WorkerConfigs returns the configurations of the workers for the library.
func (c *Config) WorkerConfigs() []reprise.WorkerConfig {
	var all []reprise.WorkerConfig
	for _, w := range c.Workers {
		all = append(all, w.WorkerConfig)
	}
	return all
}

// Load parses a configuration of one or several files. The path - is standard input. A directory stands for its files
// *.yaml and *.yml, in alphabetical order. The workers, exchanges and periodic messages of all files form the configuration; every other key
// may be in one of the files. If the files contain errors, Load returns *[Problems].
func Load(paths ...string) (*Config, error) {
	files, err := readFiles(paths)
	if err != nil {
		return nil, err
	}
	return parse(files, os.LookupEnv)
}

func readFiles(paths []string) (files []source, err error) {
	for _, path := range paths {
		names, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if slices.ContainsFunc(files, func(s source) bool { return s.name == name }) {
				return nil, fmt.Errorf("%s is part of the configuration twice: pass it once", name)
			}
			data, err := readFile(name)
			if err != nil {
				return nil, err
			}
			files = append(files, source{name, data})
		}
	}
	return files, nil
}

// source is a file of a configuration.
type source struct {
	name string
	data []byte
}

// filesOf returns the files of a directory, or path if it is not a directory.
func filesOf(path string) (names []string, err error) {
	if info, err := os.Stat(path); path == "-" || err != nil || !info.IsDir() {
		return []string{path}, nil // readFile returns the error
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	for _, e := range entries {
		// Kubernetes and editors write hidden files.
		if ext := filepath.Ext(e.Name()); (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("directory %s has no file *.yaml (create one, or pass a file with -c FILE)", path)
	}
	return names, nil
}

// readFile returns the content of a file.
func readFile(path string) (data []byte, err error) {
	f, err := os.Stdin, error(nil)
	if path != "-" {
		f, err = os.Open(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file %s not found (create it, or pass another file with -c FILE)", path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s exceeds %d bytes, the maximum of a configuration file", path, maxFile)
	}
	return data, nil
}

// Parse parses data, the content of a file. Errors contain the name of the file, and relative paths are relative to
// its directory. Parse looks up environment variables with lookup. If the file contains errors, it returns
// *[Problems].
func Parse(name string, data []byte, lookup func(string) (string, bool)) (*Config, error) {
	return parse([]source{{name, data}}, lookup)
}

func parse(files []source, lookup func(string) (string, bool)) (*Config, error) {
	r := &report{}
	c := &Config{report: r}
	if f, ok := r.top(files, lookup); ok {
		f.config(c)
	}
	if len(r.problems) > 0 {
		return nil, r.sorted()
	}
	return c, nil
}

// top returns the keys of all files, or false if a file has no keys.
func (r *report) top(files []source, lookup func(string) (string, bool)) (all *fields, ok bool) {
	ok = true
	for _, file := range files {
		f, valid := r.decoder(file, lookup).file()
		switch {
		case !valid:
			ok = false
		case all == nil:
			all = f
		default:
			all.join(f)
		}
	}
	return all, ok
}

// repeatable are the top-level keys that several files may have.
var repeatable = []string{"cron", "exchanges", "workers"}

// join adds the keys of a further file.
func (f *fields) join(other *fields) {
	for _, p := range other.pairs {
		if first, twice := f.find(p.key); twice && !slices.Contains(repeatable, p.key) {
			p.failAt(p.keyAt, "key %s already exists %s: keep one", shownKey(p.key), first.keyAt.from(p.keyAt))
			continue
		}
		f.pairs = append(f.pairs, p)
	}
}

// config decodes the top level of the files. The configuration is invalid if there are problems.
func (f *fields) config(c *Config) {
	defer f.finish()
	c.Dir = f.dir
	c.sources = map[string]string{}
	for _, p := range f.pairs {
		c.sources[p.key] = p.dir + p.contents()
	}
	var ports ports
	external := f.with("broker", func(x value) {
		c.BrokerAt = x.at
		c.Broker, _ = x.brokerURL()
	})
	if external {
		f.refuse("is for the embedded broker, and broker: is the URL of another broker: remove one of the two", "listen", "data")
	} else {
		c.Listen, c.Data = Listen{Addr: DefaultListen}, filepath.Join(c.Dir, DefaultData)
		f.with("listen", func(x value) { c.Listen = x.listen() })
		ports.add("listen", c.Listen.Addr, c.Listen.At)
		read(f, "data", &c.Data, value.dataDir)
	}
	f.with("metrics", func(x value) {
		c.Metrics, _ = openAddr("127.0.0.1:9090")(x)
		ports.add("metrics", c.Metrics, x.at)
	})
	read(f, "telemetry", &c.Telemetry, value.telemetry)
	f.with("announce", func(x value) {
		yes, ok := x.boolean()
		c.Silent = ok && !yes
	})
	f.archiveAndConsole(c, !external)
	if c.Console != nil {
		ports.add("console", c.Console.Listen, c.Console.At)
	}
	ports.check(f.decoder)
	e := exchanges{embedded: !external}
	for _, x := range f.all("exchanges") {
		e.decode(x)
	}
	lists := f.all("workers")
	if len(lists) > 0 {
		c.Workers = f.workers(lists, &e)
	}
	f.outboxAndCron(c, &e)
	if len(lists) == 0 && c.Outbox == nil {
		f.missing("the file has no workers; write at least\nworkers:\n  - queue: NAME\n    exec: [PROGRAM]", "workers")
		return
	}
	e.finish()
}

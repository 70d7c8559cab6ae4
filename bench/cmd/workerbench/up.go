package main

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

//go:embed handlers
var handlers embed.FS

// up returns a contender that runs reprise up with a handler in another language. The kind is exec, process, http or unix.
func up(kind, interpreter, script string) contender {
	return func(ctx context.Context, j *job) (err error) {
		dir, err := os.MkdirTemp("", "workerbench-up-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if err := os.CopyFS(dir, handlers); err != nil {
			return err
		}
		script := filepath.Join(dir, "handlers", script)
		handler := fmt.Sprintf("%s: [%s, %s, %s]", kind, interpreter, script, kind)
		if kind == "http" || kind == "unix" {
			service, err := proc.Start(ctx, os.Stderr, interpreter, script, kind, filepath.Join(dir, "s"))
			if err != nil {
				return err
			}
			defer service.Kill()
			handler = "http: " + service.URL
		}
		config := fmt.Sprintf("broker: %q\nmetrics: 127.0.0.1:0\nworkers:\n  - queue: %s\n    concurrency: %d\n    prefetch: %d\n    %s\n",
			j.url, j.queue, j.concurrency, j.prefetch, handler)
		file := filepath.Join(dir, "reprise.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return err
		}
		return j.runUp(ctx, file)
	}
}

var (
	metricsURL = regexp.MustCompile(`metrics and health +url=(http://\S+)`)
	doneTotal  = regexp.MustCompile(`(?m)^reprise_attempts_total\{[^}]*outcome="done"[^}]*\} (\S+)$`)
	warning    = regexp.MustCompile(`^\S+ (WARN|ERROR) `)
	retried    = regexp.MustCompile(`(?m)^reprise_attempts_total\{[^}]*outcome="(?:retried|parked)"[^}]*\} [^0]`)
)

// runUp runs reprise up until its metrics count all messages as done.
func (j *job) runUp(ctx context.Context, file string) error {
	cmd := exec.CommandContext(ctx, j.reprise, "up", "-c", file)
	log, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	metrics := ""
	lines := bufio.NewScanner(log)
	for metrics == "" && lines.Scan() {
		if m := metricsURL.FindStringSubmatch(lines.Text()); m != nil {
			metrics = m[1] + "/metrics"
		} else {
			fmt.Fprintln(os.Stderr, lines.Text())
		}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			if warning.MatchString(lines.Text()) {
				fmt.Fprintln(os.Stderr, lines.Text())
			}
		}
	}()
	err = j.count(ctx, metrics)
	j.meter.end()
	err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM))
	<-read
	return errors.Join(err, cmd.Wait())
}

// count passes the number of done messages to the meter.
func (j *job) count(ctx context.Context, metrics string) error {
	counted := 0
	for counted < j.messages {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		response, err := http.Get(metrics)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			return err
		}
		done := 0.0
		if m := doneTotal.FindSubmatch(text); m != nil {
			if done, err = strconv.ParseFloat(string(m[1]), 64); err != nil {
				return err
			}
		}
		if retried.Match(text) {
			return errors.New("the handler failed")
		}
		for ; counted < min(int(done), j.messages); counted++ {
			j.meter.handled()
		}
	}
	return nil
}

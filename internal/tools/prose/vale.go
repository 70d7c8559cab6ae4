package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// alert is an alert in Vale's JSON output.
type alert struct {
	Line    int
	Check   string
	Message string
}

// runVale returns the alerts of each file. A Vale process reads its files one after the other, so runVale starts one
// process per processor.
func runVale(vale, config string, files []string) (map[string][]alert, error) {
	parts := make([][]string, runtime.NumCPU())
	for i, file := range files {
		parts[i%len(parts)] = append(parts[i%len(parts)], file)
	}
	found := make([]map[string][]alert, len(parts))
	var g errgroup.Group
	for i, part := range parts {
		if len(part) > 0 {
			g.Go(func() (err error) {
				found[i], err = valeProcess(vale, config, part)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := make(map[string][]alert, len(files))
	for _, part := range found {
		maps.Copy(all, part)
	}
	return all, nil
}

func valeProcess(vale, config string, files []string) (map[string][]alert, error) {
	cmd := exec.Command(vale, append([]string{"--no-global", "--no-exit", "--config", config, "--output", "JSON"}, files...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w: %s%s", vale, err, stderr.Bytes(), out)
	}
	var alerts map[string][]alert
	if err := json.Unmarshal(out, &alerts); err != nil {
		return nil, fmt.Errorf("cannot read the output of %s: %w: %.200s", vale, err, out)
	}
	return alerts, nil
}

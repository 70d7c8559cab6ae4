package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const ticksPerSecond = 100 // on every Linux platform that Go supports

// process is a line of /proc/PID/stat.
type process struct {
	parent int
	ticks  int // of the process and of its children that have ended
}

// processes returns all processes.
func processes() map[int]process {
	all := make(map[int]process)
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it exited
		}
		// The second field is the program name in parentheses, which can contain any character.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		field := func(n int) int { v, _ := strconv.Atoi(f[n-3]); return v }
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		all[pid] = process{parent: field(4), ticks: field(14) + field(15) + field(16) + field(17)}
	}
	return all
}

// descendants returns the processes and their children, each of them once.
func descendants(all map[int]process, roots []int) (pids []int) {
	for pid := range all {
		for p := pid; p > 0; p = all[p].parent {
			if slices.Contains(roots, p) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// cpuOf returns the processor time of processes and their children.
func cpuOf(roots ...int) (seconds float64) {
	all := processes()
	for _, pid := range descendants(all, roots) {
		seconds += float64(all[pid].ticks) / ticksPerSecond
	}
	return seconds
}

// memoryOf returns the proportional set size of processes and their children in bytes. It counts memory that they share once.
func memoryOf(roots ...int) (bytes float64, err error) {
	for _, pid := range descendants(processes(), roots) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it exited
		}
		if err != nil {
			return 0, err // of another user
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
				kib, _ := strconv.ParseFloat(f[1], 64)
				bytes += kib * 1024
			}
		}
	}
	return bytes, nil
}

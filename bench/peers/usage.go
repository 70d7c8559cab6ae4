package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

// processes returns all processes.
func processes() map[int]proc.Stat {
	all := make(map[int]proc.Stat)
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if stat, err := proc.ReadStat(pid); err == nil { // otherwise it exited
			all[pid] = stat
		}
	}
	return all
}

// descendants returns the processes and their children, each of them once.
func descendants(all map[int]proc.Stat, roots []int) (pids []int) {
	for pid := range all {
		for p := pid; p > 0; p = all[p].Parent {
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
		seconds += all[pid].Used + all[pid].Ended
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

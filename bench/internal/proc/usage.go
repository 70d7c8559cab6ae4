// Package proc starts and stops processes, and measures their resource use.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Memory is the memory use of a process in bytes.
type Memory struct {
	Resident int64
	Peak     int64 // maximum since the start of the process or since ResetPeak
}

// MemoryOf reads /proc/PID/status.
func MemoryOf(pid int) (m Memory, err error) {
	err = readValues(fmt.Sprintf("/proc/%d/status", pid), map[string]*int64{"VmRSS": &m.Resident, "VmHWM": &m.Peak})
	m.Resident <<= 10
	m.Peak <<= 10
	return m, err
}

// readValues reads a file with lines such as "name: 17" or "name: 17 kB", and sets the values of the given names.
func readValues(file string, into map[string]*int64) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		field := into[name]
		if field == nil {
			continue
		}
		if *field, err = strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// ResetPeak resets the peak of a process to its current memory use.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// ticksPerSecond converts the times in /proc/PID/stat to seconds. Its value is the same on every Linux platform that
// Go supports.
const ticksPerSecond = 100

// CPU returns the processor time that all threads of a process have used, in seconds.
func CPU(pid int) (float64, error) {
	s, err := ReadStat(pid)
	return s.Used, err
}

// Stat is a part of /proc/PID/stat.
type Stat struct {
	Parent int
	Used   float64 // processor time of the process in seconds
	Ended  float64 // the same for its children that have ended
}

// ReadStat reads /proc/PID/stat.
func ReadStat(pid int) (Stat, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, err
	}
	// The second field is the program name in parentheses, which can contain any character.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var values [5]int // parent; user and system time; the same of the children
	for i, field := range []int{4, 14, 15, 16, 17} {
		if field -= 3; field >= len(fields) {
			return Stat{}, fmt.Errorf("/proc/%d/stat must have more than %d fields: got %d", pid, field, len(fields))
		}
		if values[i], err = strconv.Atoi(fields[field]); err != nil {
			return Stat{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	seconds := func(ticks int) float64 { return float64(ticks) / ticksPerSecond }
	return Stat{Parent: values[0], Used: seconds(values[1] + values[2]), Ended: seconds(values[3] + values[4])}, nil
}

// Steps are operations of a process that cost more than their instructions.
type Steps struct {
	Calls    int64 // reads and writes, of files and sockets
	Switches int64 // of its current threads, to other threads
}

// ReadSteps reads /proc/PID/io and /proc/PID/task/*/status.
func ReadSteps(pid int) (s Steps, err error) {
	var reads, writes int64
	if err := readValues(fmt.Sprintf("/proc/%d/io", pid), map[string]*int64{"syscr": &reads, "syscw": &writes}); err != nil {
		return s, err
	}
	s.Calls = reads + writes
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, thread := range threads {
		var voluntary, other int64
		err := readValues(thread, map[string]*int64{"voluntary_ctxt_switches": &voluntary, "nonvoluntary_ctxt_switches": &other})
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // otherwise, the thread has ended
			return s, err
		}
		s.Switches += voluntary + other
	}
	return s, err
}

// Busy returns the processor time that the machine has used, in seconds. It includes the time that the hypervisor
// gave to other machines (steal time).
func Busy() (float64, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(line)
	const idle, wait, steal = 4, 5, 8
	if len(fields) <= steal {
		return 0, fmt.Errorf("first line of /proc/stat must have more than %d fields: got %q", steal, line)
	}
	var ticks int64
	for i, field := range fields[:steal+1] {
		if i == 0 || i == idle || i == wait {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
}

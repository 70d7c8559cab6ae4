// Package proc starts and stops processes, and measures their resource use.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is the memory use of a process in bytes.
type Memory struct {
	Resident int64
	Peak     int64 // maximum since the start of the process or since ResetPeak
}

// MemoryOf reads /proc/PID/status.
func MemoryOf(pid int) (Memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		field := map[string]*int64{"VmRSS": &m.Resident, "VmHWM": &m.Peak}[name]
		if field == nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("/proc/%d/status: %w", pid, err)
		}
		*field = n << 10
	}
	return m, nil
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
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program name in parentheses, which can contain any character.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const userTime, systemTime = 14 - 3, 15 - 3
	if len(fields) <= systemTime {
		return 0, fmt.Errorf("/proc/%d/stat must have more than %d fields: got %d", pid, systemTime, len(fields))
	}
	var ticks int64
	for _, i := range []int{userTime, systemTime} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
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

package proc_test

import (
	"os"
	"testing"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

func TestCPUAndBusyIncrease(t *testing.T) {
	me := os.Getpid()
	before, err := proc.CPU(me)
	if err != nil {
		t.Fatal(err)
	}
	busy, err := proc.Busy()
	if err != nil {
		t.Fatal(err)
	}
	for used := before; used == before; {
		if used, err = proc.CPU(me); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := proc.Busy(); err != nil || now <= busy {
		t.Errorf("busy time: got %v s after %v s (%v), want an increase", now, busy, err)
	}
}

func TestResetPeak(t *testing.T) {
	me := os.Getpid()
	m, err := proc.MemoryOf(me)
	if err != nil || m.Resident < 1<<20 || m.Peak < m.Resident {
		t.Fatalf("memory: got %+v, %v, want at least 1 MiB resident and a peak that is not lower", m, err)
	}
	if err := proc.ResetPeak(me); err != nil {
		t.Error(err)
	}
}

func TestStepsIncrease(t *testing.T) {
	me := os.Getpid()
	before, err := proc.ReadSteps(me)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := os.ReadFile("/proc/self/stat"); err != nil {
			t.Fatal(err)
		}
	}
	after, err := proc.ReadSteps(me)
	if err != nil || after.Calls < before.Calls+10 || after.Switches < 1 {
		t.Errorf("steps: got %+v, then %+v, %v, want 10 further calls or more, and switches", before, after, err)
	}
}

func TestUsageOfMissingProcess(t *testing.T) {
	if _, err := proc.CPU(1 << 30); err == nil {
		t.Error("CPU of a missing process returned no error")
	}
	if _, err := proc.ReadSteps(1 << 30); err == nil {
		t.Error("ReadSteps of a missing process returned no error")
	}
	if _, err := proc.MemoryOf(1 << 30); err == nil {
		t.Error("MemoryOf of a missing process returned no error")
	}
}

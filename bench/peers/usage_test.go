package main

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

func TestDescendantsContainEachProcessOnce(t *testing.T) {
	all := map[int]proc.Stat{1: {Parent: 0}, 2: {Parent: 1}, 3: {Parent: 2}, 4: {Parent: 1}, 5: {Parent: 9}}
	got := descendants(all, []int{2, 3, 4, 7})
	if slices.Sort(got); !slices.Equal(got, []int{2, 3, 4}) {
		t.Errorf("got %v, want [2 3 4]", got)
	}
}

func TestUsageContainsChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; exec cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if cpu := cpuOf(cmd.Process.Pid); cpu == 0 {
		t.Error("the processor time is 0")
	}
	if memory, err := memoryOf(cmd.Process.Pid); err != nil || memory == 0 {
		t.Errorf("memory: got %v, %v", memory, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if cpu := cpuOf(cmd.Process.Pid); cpu != 0 {
		t.Errorf("processor time after the end: got %v, want 0", cpu)
	}
}

package alarm

import (
	"slices"
	"testing"
)

func TestSet(t *testing.T) {
	memory, disk, broken := &Alarm{Resource: Memory}, &Alarm{Resource: Disk}, &Alarm{Resource: Store}
	hung := &Alarm{Resource: Response}
	set := Set{memory, disk, broken, hung}
	check := func(reason string, raised ...Resource) {
		t.Helper()
		if got := set.Resources(); !slices.Equal(got, raised) || (set.Raised() != nil) != (len(raised) > 0) {
			t.Errorf("raised alarms: got %v, want %v", got, raised)
		}
		if len(raised) > 0 && Reason(set.Resources()) != reason {
			t.Errorf("reason: got %q, want %q", Reason(set.Resources()), reason)
		}
	}
	check("")
	if memory.Set(false) || !memory.Set(true) || memory.Set(true) {
		t.Error("Set reports a wrong change")
	}
	over := set.Raised()
	check("low on memory", Memory)
	disk.Set(true)
	check("low on memory & disk", Memory, Disk)
	select {
	case <-over:
		t.Error("channel closed while both alarms are raised")
	default:
	}
	memory.Set(false)
	<-over
	check("low on disk", Disk)
	if !set.Has(Disk) || set.Has(Memory) {
		t.Error("Has confuses the alarms of disk and memory")
	}
	hung.Set(true)
	check("low on disk", Disk, Response)
	disk.Set(false)
	check("the disk is full or does not respond; publishing resumes when it responds", Response)
	hung.Set(false)
	disk.Set(true)
	broken.Set(true)
	check("the disk has failed; restart the broker to continue", Disk, Store)
	disk.Set(false)
	broken.Set(false)
	check("")
}

func TestEmptySet(t *testing.T) {
	if Set(nil).Raised() != nil {
		t.Error("empty set is raised")
	}
}

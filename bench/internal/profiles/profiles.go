// Package profiles writes profiles of the current process to files.
package profiles

import (
	"errors"
	"flag"
	"os"
	"runtime"
	"runtime/pprof"
)

// Files contains the file name of each profile. An empty name disables the profile. Files is not safe for concurrent use.
type Files struct {
	cpu, memory, mutex string
	cpuFile            *os.File
}

// Flags defines a command-line flag for each file name.
func (p *Files) Flags(f *flag.FlagSet) {
	f.StringVar(&p.cpu, "cpuprofile", "", "`file` for the profile of the processor")
	f.StringVar(&p.memory, "memprofile", "", "`file` for the profile of what was allocated")
	f.StringVar(&p.mutex, "mutexprofile", "", "`file` for the profile of contended locks")
}

// Start starts the profiles. Call it early, because the memory profile does not contain earlier allocations.
func (p *Files) Start() (err error) {
	if p.mutex != "" {
		runtime.SetMutexProfileFraction(10)
	}
	if p.memory == "" {
		runtime.MemProfileRate = 0
	}
	if p.cpu == "" {
		return nil
	}
	if p.cpuFile, err = os.Create(p.cpu); err != nil {
		return err
	}
	return pprof.StartCPUProfile(p.cpuFile)
}

// Restart restarts the CPU profile.
func (p *Files) Restart() error {
	if p.cpu == "" {
		return nil
	}
	pprof.StopCPUProfile()
	return errors.Join(p.cpuFile.Close(), p.Start())
}

// Stop stops the profiles and writes them.
func (p *Files) Stop() (err error) {
	if p.cpu != "" {
		pprof.StopCPUProfile()
		err = p.cpuFile.Close()
	}
	runtime.GC() // the memory profile contains the state after the last garbage collection
	return errors.Join(err, write("allocs", p.memory), write("mutex", p.mutex))
}

func write(profile, file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(profile).WriteTo(f, 0), f.Close())
}

package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profiles are the files to write; an empty name is none.
type profiles struct {
	cpu, memory, mutex string
	cpuFile            *os.File
}

func (p *profiles) start() (err error) {
	if p.cpu == "" {
		return nil
	}
	if p.cpuFile, err = os.Create(p.cpu); err != nil {
		return err
	}
	return pprof.StartCPUProfile(p.cpuFile)
}

func (p *profiles) restart() error {
	if p.cpu == "" {
		return nil
	}
	pprof.StopCPUProfile()
	return errors.Join(p.cpuFile.Close(), p.start())
}

func (p *profiles) stop() (err error) {
	if p.cpu != "" {
		pprof.StopCPUProfile()
		err = p.cpuFile.Close()
	}
	runtime.GC() // the profile of memory is as of the last collection
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

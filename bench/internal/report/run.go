package report

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Run contains the results of one execution of a benchmark, and describes its environment.
type Run struct {
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	Command []string  `json:"command"`
	Commit  string    `json:"commit"`
	Kernel  string    `json:"kernel"`
	CPU     string    `json:"cpu"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	Load    string    `json:"load_before"` // load averages at the start
	Tables  []*Table  `json:"scenarios"`
}

// NewRun returns a Run that describes the environment. The argument root is the root folder of the repository.
func NewRun(root string) *Run {
	r := &Run{Began: time.Now(), Command: os.Args[1:], CPUs: runtime.NumCPU(), Go: runtime.Version()}
	r.Commit = output("git", "-C", root, "describe", "--always", "--dirty", "--exclude=*")
	r.Kernel = output("uname", "-sr")
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.Load = strings.TrimSpace(string(load))
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, model, _ := strings.Cut(string(info), "model name")
		model, _, _ = strings.Cut(model, "\n")
		r.CPU = strings.Trim(model, " \t:")
	}
	return r
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Add prints a table and, unless file is "", writes all results so far to the file as JSON, in case a later
// measurement takes long or fails.
func (r *Run) Add(w io.Writer, t *Table, file string) error {
	r.Ended = time.Now()
	r.Tables = append(r.Tables, t)
	if err := t.Write(w); err != nil || file == "" {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

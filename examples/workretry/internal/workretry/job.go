package workretry

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// Job is a piece of work that fails for a while. Its JSON is the body of a
// message.
type Job struct {
	ID    int `json:"job"`
	Fails int `json:"fails"` // how many attempts fail; Never: all

	breaks  Break // what happens while it is retried, or parked
	parking bool
}

// Never is the Fails of a job that does not succeed.
const Never = -1

// attempt is what comes of the nth attempt.
func (j Job) attempt(n int) error {
	if j.Fails == Never || n <= j.Fails {
		return fmt.Errorf("job %d failed in attempt %d", j.ID, n)
	}
	return nil
}

func (j Job) body() []byte {
	b, err := json.Marshal(j)
	if err != nil {
		panic(err) // of two integers
	}
	return b
}

// jobOf reads a body. One that is no job is one that succeeds.
func jobOf(body []byte) Job {
	var j Job
	if err := json.Unmarshal(body, &j); err != nil {
		return Job{}
	}
	return j
}

// A Break is what happens in the middle of a retry, or of parking.
type Break int

const (
	nothing Break = iota
	endsBefore
	endsHalfway
	losesConfirm
	losesConsuming
)

// breaks are those that something breaks in.
var breaks = []Break{endsBefore, endsHalfway, losesConfirm, losesConsuming}

func (b Break) String() string {
	switch b {
	case endsBefore:
		return "the process ends before anything is settled"
	case endsHalfway:
		return "the process ends between the two steps"
	case losesConfirm:
		return "the confirm of the copy is lost"
	case losesConsuming:
		return "the consuming connection is lost"
	}
	return "nothing breaks"
}

// MinJobs is how many jobs a comparison has at least: of each break, two while a
// job is retried, and one while it is parked.
const MinJobs = 12

// maxAttempts is how many a job has. One that succeeds in the end needs fewer.
const maxAttempts = 4

// plan returns n jobs, at least MinJobs, the same for the same seed.
func plan(n int, seed uint64) []Job {
	random := rand.New(rand.NewPCG(seed, 0))
	var jobs []Job
	for _, b := range breaks {
		jobs = append(jobs,
			Job{Fails: 1, breaks: b},
			Job{Fails: 2 + random.IntN(maxAttempts-2), breaks: b},
			Job{Fails: Never, breaks: b, parking: true})
	}
	for len(jobs) < n {
		j := Job{Fails: random.IntN(maxAttempts)}
		if random.IntN(6) == 0 {
			j.Fails = Never
		}
		jobs = append(jobs, j)
	}
	random.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	for i := range jobs {
		jobs[i].ID = i + 1
	}
	return jobs
}

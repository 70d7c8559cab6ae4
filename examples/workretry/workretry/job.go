package workretry

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// Job is a unit of work that fails in its first attempts. The body of a message is a Job in JSON.
type Job struct {
	ID    int `json:"job"`
	Fails int `json:"fails"` // number of failing attempts; Never: all

	breaks  Break // failure to inject during a retry or, if parking is set, during parking
	parking bool
}

// Never is the value of Job.Fails for a job that never succeeds.
const Never = -1

// attempt returns the error of the nth attempt, or nil if the attempt succeeds.
func (j Job) attempt(n int) error {
	if j.Fails == Never || n <= j.Fails {
		return fmt.Errorf("job %d failed in attempt %d", j.ID, n)
	}
	return nil
}

func (j Job) body() []byte {
	b, err := json.Marshal(j)
	if err != nil {
		panic(err) // impossible for two integers
	}
	return b
}

// jobOf parses a body. If the body does not contain a job, jobOf returns a job that succeeds in its first attempt.
func jobOf(body []byte) Job {
	var j Job
	if err := json.Unmarshal(body, &j); err != nil {
		return Job{}
	}
	return j
}

// A Break is a kind of failure during a retry or during parking.
type Break int

const (
	nothing Break = iota
	endsBefore
	endsHalfway
	losesConfirm
	losesConsuming
)

// breaks lists the values of Break that cause a failure.
var breaks = []Break{endsBefore, endsHalfway, losesConfirm, losesConsuming}

func (b Break) String() string {
	switch b {
	case endsBefore:
		return "the process exits before anything is settled"
	case endsHalfway:
		return "the process exits between the two steps"
	case losesConfirm:
		return "the confirm of the copy is lost"
	case losesConsuming:
		return "the consuming connection is lost"
	}
	return "nothing breaks"
}

// MinJobs is the minimum number of jobs of a comparison. Each Break needs two jobs that are retried and one job that is
// parked.
const MinJobs = 12

// maxAttempts is the maximum number of attempts of a job.
const maxAttempts = 4

// plan returns n jobs, where n is at least MinJobs. The result depends only on n and seed.
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

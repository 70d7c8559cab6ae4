package explore

// A Breakage is a failure of connections or of the worker's process. By default, the broker and the worker notice the
// failure immediately.
type Breakage struct {
	Name  string
	lines []string // connections that the failure cuts

	// late means that the worker notices the failure only when it next sends a frame, or when it is idle.
	late bool

	// ends means that the worker's process exits, which closes its connections, and a new process replaces it.
	ends bool
}

// The connections of a client, in the order in which it opens them.
const (
	publishing = "publishing"
	consuming  = "consuming"
)

// Breakages lists all breakages.
var Breakages = []Breakage{
	{Name: "publishing connection", lines: []string{publishing}},
	{Name: "consuming connection", lines: []string{consuming}},
	{Name: "consuming connection, noticed late", lines: []string{consuming}, late: true},
	{Name: "worker's process", lines: []string{publishing, consuming}, ends: true},
}

// An Outcome is the final state of a message.
type Outcome int

// The outcomes.
const (
	Intact     Outcome = iota // done or parked exactly once
	Lost                      // no copy exists
	Duplicated                // several copies with the same ID exist
)

// String returns "lost", "duplicated", or a dot for Intact.
func (o Outcome) String() string { return [...]string{"·", "lost", "duplicated"}[o] }

func outcomeOf(copies int) Outcome {
	switch copies {
	case 0:
		return Lost
	case 1:
		return Intact
	}
	return Duplicated
}

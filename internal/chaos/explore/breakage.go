package explore

// A Breakage is what breaks. The broker gets to know at once, and so does the
// worker, unless it is said otherwise.
type Breakage struct {
	Name  string
	lines []string // connections that are cut

	// late: the worker gets to know when it next sends something.
	late bool

	// ends: the worker's process does not live longer than its connections.
	// Another one goes on.
	ends bool
}

// The connections of a client, in the order in which it opens them.
const (
	publishing = "publishing"
	consuming  = "consuming"
)

// Breakages are all that there are.
var Breakages = []Breakage{
	{Name: "publishing connection", lines: []string{publishing}},
	{Name: "consuming connection", lines: []string{consuming}},
	{Name: "consuming connection, noticed late", lines: []string{consuming}, late: true},
	{Name: "worker's process", lines: []string{publishing, consuming}, ends: true},
}

// An Outcome is what has become of a message in the end.
type Outcome int

// The outcomes.
const (
	Intact     Outcome = iota // it is done, or parked, once
	Lost                      // it is nowhere
	Duplicated                // there are several with the same id
)

// String returns a word; what is Intact needs none.
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

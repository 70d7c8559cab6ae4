package simulation

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Script is the plan of a life: a shape and its steps.
type Script struct {
	Seed  uint64
	Shape Shape
	Steps []Step // ordered by time
}

// A Step is an act at a given time in a life. The act defines the meaning of the fields.
type Step struct {
	At   time.Duration // since the beginning of the life
	Act  string        // name of a registered act
	On   string        // object of the act, such as a queue or the owner of a connection
	N    int
	For  time.Duration
	Seed uint64 // seed of the values that the act itself draws
}

// Random returns a random source for the step. Each call returns a source with the same sequence.
func (s Step) Random() *rand.Rand { return rand.New(rand.NewPCG(s.Seed, 1)) }

// String returns the step as a line of a script file.
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %s", s.At, s.Act)
	if s.On != "" {
		fmt.Fprintf(&b, " on=%s", s.On)
	}
	if s.N != 0 {
		fmt.Fprintf(&b, " n=%d", s.N)
	}
	if s.For != 0 {
		fmt.Fprintf(&b, " for=%v", s.For)
	}
	fmt.Fprintf(&b, " seed=%x", s.Seed)
	return b.String()
}

func parseStep(line string) (s Step, err error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return s, errors.New("step must have a time and an act")
	}
	if s.At, err = time.ParseDuration(words[0]); err != nil {
		return s, err
	}
	s.Act = words[1]
	if _, ok := acts[s.Act]; !ok {
		return s, fmt.Errorf("act %q not found", s.Act)
	}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "on":
			s.On = value
		case "n":
			s.N, err = strconv.Atoi(value)
		case "for":
			s.For, err = time.ParseDuration(value)
		case "seed":
			s.Seed, err = strconv.ParseUint(value, 16, 64)
		default:
			err = fmt.Errorf("%q is not an argument of a step", w)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// Write writes the script in the format that ReadScript reads.
func (s Script) Write(w io.Writer) error {
	shape, err := json.Marshal(s.Shape)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "seed %d\nshape %s\n", s.Seed, shape)
	for _, step := range s.Steps {
		fmt.Fprintln(b, step)
	}
	return b.Flush()
}

// ReadScript reads a script in the format that Write writes.
func ReadScript(r io.Reader) (s Script, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case word == "seed":
			s.Seed, err = strconv.ParseUint(rest, 10, 64)
		case word == "shape":
			err = json.Unmarshal([]byte(rest), &s.Shape)
		default:
			var step Step
			step, err = parseStep(line)
			s.Steps = append(s.Steps, step)
		}
		if err != nil {
			return s, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return s, lines.Err()
}

// An Act is a kind of step.
type Act struct {
	Name string

	// Fault distinguishes a fault from an action of a participant. The table at the end of a run lists the two separately.
	Fault bool

	// Weight is the relative frequency of the act. Acts with weight 0 occur only in handwritten scripts and in the steps
	// that other acts draw.
	Weight int

	// Fits reports whether the act fits a shape. By default, the act fits all shapes.
	Fits func(Shape) bool

	// Draw returns the steps of one occurrence, with times between 0 and the horizon of the shape. If the act does not fit
	// the shape, Draw returns nil. Defaults replace zero values of At, Act and Seed. If Draw is nil, an occurrence is one
	// step without arguments.
	Draw func(random *rand.Rand, shape Shape) []Step

	// Do performs the step in the goroutine of the script. Longer work belongs in a goroutine that [Life.Go] starts. Do
	// calls [Life.Count], unless the act has no effect, for example because the broker is down.
	Do func(l *Life, s Step)
}

var acts = make(map[string]Act)

// RegisterAct adds an act. Call it from an init function.
func RegisterAct(a Act) {
	if _, ok := acts[a.Name]; ok || a.Name == "" || a.Do == nil {
		panic("simulation: act " + a.Name + " is registered twice or has no Do")
	}
	acts[a.Name] = a
}

// Acts returns the registered acts, ordered by name.
func Acts() []Act {
	all := make([]Act, 0, len(acts))
	for _, a := range acts {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Act) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Draw returns the script of a seed.
func Draw(seed uint64) Script {
	random := rand.New(rand.NewPCG(seed, 0))
	s := Script{Seed: seed, Shape: drawShape(random)}
	if seed%archiveEvery == 0 {
		drawArchive(random, &s.Shape)
	}
	if seed%outboxEvery == outboxRest {
		drawOutbox(random, &s.Shape)
	}
	s.Steps = drawSteps(random, s.Shape)
	return s
}

func drawSteps(random *rand.Rand, shape Shape) (steps []Step) {
	var drawn []Act // each act, repeated Weight times
	for _, a := range Acts() {
		if a.Fits != nil && !a.Fits(shape) {
			continue
		}
		for range a.Weight {
			drawn = append(drawn, a)
		}
	}
	for range shape.Acts {
		a := drawn[random.IntN(len(drawn))]
		some := []Step{{}}
		if a.Draw != nil {
			some = a.Draw(random, shape)
		}
		for _, s := range some {
			s.Act = cmp.Or(s.Act, a.Name)
			s.At = cmp.Or(s.At, upTo(random, shape.Horizon))
			s.Seed = cmp.Or(s.Seed, uint64(random.Uint32()))
			steps = append(steps, s)
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return steps
}

// upTo draws a positive duration in whole milliseconds, at most d.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(1+random.Int64N(max(1, d.Milliseconds()))) * time.Millisecond
}

// between draws a duration from least to most, in whole milliseconds, with a log-uniform distribution. All orders of
// magnitude are equally likely.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	d := float64(least) * math.Pow(float64(most)/float64(least), random.Float64())
	return max(time.Millisecond, time.Duration(d).Truncate(time.Millisecond))
}

// oneOf draws one of the values.
func oneOf[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

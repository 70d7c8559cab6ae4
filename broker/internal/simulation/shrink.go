package simulation

import (
	"fmt"
	"slices"
	"strings"
)

// Shrink removes steps from a script, and works from its shape, as long as the remaining script still fails. The
// function fails reports whether a script fails; the argument calls limits the number of its calls. Shrink returns the
// shortest failing script that it found.
func Shrink(s Script, calls int, fails func(Script) bool) Script {
	try := func(c Script) bool {
		if calls--; calls < 0 || !fails(c) {
			return false
		}
		s = c
		return true
	}
	for part := (len(s.Steps) + 1) / 2; part > 0 && calls > 0; {
		removed := false
		for at := len(s.Steps) - part; at > -part && calls > 0; at -= part {
			c := s
			c.Steps = slices.Concat(s.Steps[:max(0, at)], s.Steps[at+part:])
			removed = try(c) || removed
			at = min(at, len(s.Steps))
		}
		if !removed || part > len(s.Steps) {
			part /= 2
		}
	}
	for _, w := range slices.Clone(s.Shape.Works) {
		if len(s.Shape.Works) > 1 && !s.mentions(w.Name) {
			c := s
			c.Shape.Works = slices.DeleteFunc(slices.Clone(s.Shape.Works), func(o Work) bool { return o.Name == w.Name })
			try(c)
		}
	}
	return s
}

// mentions reports whether a step refers to a work.
func (s Script) mentions(work string) bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return step.On == work || strings.HasPrefix(step.On, work+".") })
}

// Keep returns the script with only the steps that have the given numbers. The first step has the number 0.
func (s Script) Keep(numbers []int) (Script, error) {
	var steps []Step
	for _, n := range numbers {
		if n < 0 || n >= len(s.Steps) {
			return s, fmt.Errorf("step %d not found in a script of %d steps", n, len(s.Steps))
		}
		steps = append(steps, s.Steps[n])
	}
	s.Steps = steps
	return s, nil
}

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// ceiling limits the findings of a package or document.
type ceiling struct{ alerts, strings int }

// readCeilings returns the ceilings by name, or nil if the file does not exist.
func readCeilings(file string) (map[string]ceiling, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	limits := make(map[string]ceiling)
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		if lines.Text() == "" || lines.Text()[0] == '#' {
			continue
		}
		var name string
		var c ceiling
		if _, err := fmt.Sscanf(lines.Text(), "%s %d %d", &name, &c.alerts, &c.strings); err != nil {
			return nil, fmt.Errorf("%s:%d: cannot read %q: %w", file, n, lines.Text(), err)
		}
		if _, ok := limits[name]; ok {
			return nil, fmt.Errorf("%s:%d: duplicate ceiling of %s", file, n, name)
		}
		limits[name] = c
	}
	return limits, lines.Err()
}

const ceilingsHeader = `# The highest permitted number of findings: package or document, number of alerts, number of strings that break a rule.
# A package or document without a line must not have findings. Do not raise a number: make prose ARGS=-lower lowers them.
`

// lower reduces each ceiling in the file to the current number of findings, if that number is smaller, and returns the
// new ceilings. If all is set, units must contain all packages and documents, and lower removes the ceilings of deleted
// units. If the file does not exist, the current numbers become the ceilings.
func lower(file string, limits map[string]ceiling, units []*unit, all bool) (map[string]ceiling, error) {
	lowered := make(map[string]ceiling)
	if !all {
		maps.Copy(lowered, limits)
	}
	for _, u := range units {
		c := ceiling{u.alerts, u.strings}
		if limits != nil {
			c = ceiling{min(c.alerts, limits[u.name].alerts), min(c.strings, limits[u.name].strings)}
		}
		if delete(lowered, u.name); c != (ceiling{}) {
			lowered[u.name] = c
		}
	}
	b := bytes.NewBufferString(ceilingsHeader)
	for _, name := range slices.Sorted(maps.Keys(lowered)) {
		fmt.Fprintf(b, "%s %d %d\n", name, lowered[name].alerts, lowered[name].strings)
	}
	return lowered, os.WriteFile(file, b.Bytes(), 0o644)
}

// judge prints the units that are above their ceilings, and the number of units below their ceilings. It returns errAbove
// if a unit is above its ceiling.
func judge(out io.Writer, units []*unit, limits map[string]ceiling) error {
	above, below := 0, 0
	for _, u := range units {
		c := limits[u.name]
		if u.alerts > c.alerts || u.strings > c.strings {
			above++
			fmt.Fprintf(out, "%s: %d alerts (ceiling %d), %d strings (ceiling %d). List them with make prose PKG=./%s\n",
				u.name, u.alerts, c.alerts, u.strings, c.strings, u.name)
		}
		if u.alerts < c.alerts || u.strings < c.strings {
			below++
		}
	}
	if below > 0 {
		fmt.Fprintf(out, "%d below their ceilings. Lower the ceilings with make prose ARGS=-lower\n", below)
	}
	if above > 0 {
		return fmt.Errorf("%w by %d packages or documents (see docs/style.md)", errAbove, above)
	}
	return nil
}

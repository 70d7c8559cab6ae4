package console

import (
	"strings"
)

// maxDiffLines bounds what a comparison costs, which grows with the square of it.
const maxDiffLines = 2000

// diffLine is a line of a comparison. Class is "add", "del", "skip-lines", or "" for
// one that is in both.
type diffLine struct{ Class, Text string }

// diff compares two texts line by line and returns what is different, with up to
// context lines around it. Nil if nothing is.
func diff(before, after string, context int) []diffLine {
	if before == after {
		return nil
	}
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < min(len(a), len(b))-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	lines := make([]diffLine, 0, len(a)+len(b))
	same := func(texts []string) {
		for _, t := range texts {
			lines = append(lines, diffLine{"", t})
		}
	}
	same(a[:start])
	lines = append(lines, between(a[start:len(a)-end], b[start:len(b)-end])...)
	same(a[len(a)-end:])
	return fold(lines, context)
}

// between compares lines by their longest common subsequence. Where they are too
// many for that, all of the first gives way to all of the second.
func between(a, b []string) []diffLine {
	var lines []diffLine
	if len(a) > maxDiffLines || len(b) > maxDiffLines {
		for _, t := range a {
			lines = append(lines, diffLine{"del", t})
		}
		for _, t := range b {
			lines = append(lines, diffLine{"add", t})
		}
		return lines
	}
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			lines = append(lines, diffLine{"", a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, diffLine{"del", a[i]})
			i++
		default:
			lines = append(lines, diffLine{"add", b[j]})
			j++
		}
	}
	return lines
}

// fold leaves out what is the same and further than context lines from a difference.
func fold(lines []diffLine, context int) []diffLine {
	near := make([]bool, len(lines))
	for i, l := range lines {
		if l.Class != "" {
			for k := max(0, i-context); k < min(len(lines), i+context+1); k++ {
				near[k] = true
			}
		}
	}
	var folded []diffLine
	for i := 0; i < len(lines); {
		if near[i] {
			folded = append(folded, lines[i])
			i++
			continue
		}
		from := i
		for i < len(lines) && !near[i] {
			i++
		}
		folded = append(folded, diffLine{"skip-lines", plural(int64(i-from), "line") + " alike"})
	}
	return folded
}

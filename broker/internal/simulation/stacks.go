package simulation

import (
	"regexp"
	"runtime"
	"sort"
	"strings"
)

var inBubble = regexp.MustCompile(`^goroutine \d+ \[(.*, )?synctest bubble (\d+)[],]`)

// stacks returns the stack traces of the goroutines in the newest bubble. The goroutines that stop its clock come first.
func stacks() string {
	buf := make([]byte, 4<<20)
	var all []string
	newest := ""
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		m := inBubble.FindStringSubmatch(stack)
		if m == nil {
			continue
		}
		if len(m[2]) > len(newest) || len(m[2]) == len(newest) && m[2] > newest {
			all, newest = nil, m[2]
		}
		if m[2] == newest {
			all = append(all, strings.TrimSpace(stack))
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return !durable(all[i]) && durable(all[j]) })
	return strings.Join(all[:min(len(all), 30)], "\n\n")
}

func durable(stack string) bool {
	first, _, _ := strings.Cut(stack, "\n")
	return strings.Contains(first, "(durable)") && !strings.Contains(stack, "diskstore")
}

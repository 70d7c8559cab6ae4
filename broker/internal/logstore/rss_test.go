package logstore_test

import (
	"os"
	"strconv"
	"strings"
)

// resident returns the resident memory of the process in bytes, or 0 where the system does not report it.
func resident() int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _ := strconv.Atoi(strings.Fields(string(text))[1])
	return pages * os.Getpagesize()
}

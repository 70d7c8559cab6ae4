package failed

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// lists that have pages.
const (
	ofMessages       = "m"
	ofGroupsByLast   = "g"
	ofGroupsByFailed = "f"
	ofActs           = "a"
	ofReplays        = "r"
	ofWaiting        = "w"
)

// cursorOf writes of which list it is, where the page ended, and a sum of both, so that
// what has lost a character on its way is not taken for another place.
func cursorOf(list string, at ...int64) string {
	var s strings.Builder
	s.WriteString(list)
	for _, n := range at {
		s.WriteString(strconv.FormatInt(n, 36) + ".")
	}
	return s.String() + cursorSum(s.String())
}

func cursorSum(s string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(s))), 36)
}

// readCursor fills in where a page of a list ended.
func readCursor(c, list string, at ...*int64) error {
	invalid := fmt.Errorf("%w: %q is no cursor of this list: use the one that the page before came with, whole and unchanged, or \"\" for the first page", ErrInvalid, c)
	rest, ok := strings.CutPrefix(c, list)
	if !ok {
		return invalid
	}
	parts := strings.Split(rest, ".")
	sum := parts[len(parts)-1]
	if len(parts) != len(at)+1 || sum != cursorSum(strings.TrimSuffix(c, sum)) {
		return invalid
	}
	for i, n := range at {
		var err error
		if *n, err = strconv.ParseInt(parts[i], 36, 64); err != nil {
			return invalid
		}
	}
	return nil
}

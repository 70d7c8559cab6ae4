package failed

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/brief"
)

// Prefixes of the cursors, one for each list.
const (
	ofMessages       = "m"
	ofGroupsByLast   = "g"
	ofGroupsByFailed = "f"
	ofActs           = "a"
	ofReplays        = "r"
	ofWaiting        = "w"
)

// cursorOf returns a cursor that contains the prefix of the list, the position at the end of the page, and a checksum.
// The checksum detects missing or changed characters.
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

// readCursor parses a cursor of a list and stores the position in at. It returns ErrInvalid if the cursor is damaged or
// belongs to another list.
func readCursor(c, list string, at ...*int64) error {
	invalid := fmt.Errorf("%w: %s is not a cursor of this list (pass the cursor of the previous page unchanged, or none for the first page)", ErrInvalid, brief.Quoted(string(c)))
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

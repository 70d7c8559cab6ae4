package failed

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// Cursor says where the next page of a list begins. It is opaque; "" is the
// beginning, and as an answer the end. One that did not come with a page of the same
// list is ErrInvalid.
type Cursor string

// lists that have pages.
const (
	ofMessages       = "m"
	ofGroupsByLast   = "g"
	ofGroupsByFailed = "f"
	ofActs           = "a"
	ofReplays        = "r"
)

// cursorOf writes of which list it is, where the page ended, and a sum of both, so that
// what has lost a character on its way is not taken for another place.
func cursorOf(list string, at ...int64) Cursor {
	var s strings.Builder
	s.WriteString(list)
	for _, n := range at {
		s.WriteString(strconv.FormatInt(n, 36) + ".")
	}
	return Cursor(s.String() + cursorSum(s.String()))
}

func cursorSum(s string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(s))), 36)
}

// read fills in where a page of a list ended.
func (c Cursor) read(list string, at ...*int64) error {
	invalid := fmt.Errorf("%w: %q is no cursor of this list: use the one that the page before came with, whole and unchanged, or \"\" for the first page", ErrInvalid, string(c))
	rest, ok := strings.CutPrefix(string(c), list)
	if !ok {
		return invalid
	}
	parts := strings.Split(rest, ".")
	sum := parts[len(parts)-1]
	if len(parts) != len(at)+1 || sum != cursorSum(strings.TrimSuffix(string(c), sum)) {
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

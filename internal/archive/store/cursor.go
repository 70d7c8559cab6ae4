package store

import (
	"hash/crc32"
	"math"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
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
	invalid := failed.Invalid("%s is not a cursor of this list (pass the cursor of the previous page unchanged, or none for the first page)", brief.Quoted(string(c)))
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

// bounds returns the page size and the exclusive upper bound of the IDs, for a list in descending order of IDs.
func (p Page) bounds(list string) (size int, before int64, err error) {
	if size, err = p.size(); err != nil {
		return 0, 0, err
	}
	if p.After == "" {
		return size, math.MaxInt64, nil
	}
	before = math.MaxInt64
	err = readCursor(p.After, list, &before)
	return size, before, err
}

// Page selects a part of a list.
type Page struct {
	// After is the cursor that the previous page returned; "" selects the first page.
	After string
	Size  int // maximum number of items; default 50, at most 1000
}

// Default and maximum of Page.Size.
const (
	DefaultPageSize = 50
	MaxPageSize     = 1000
)

// Total is a number of items. If counting takes too long, the count stops early and sets More.
type Total struct {
	N    int64 `json:"n"`
	More bool  `json:"more,omitempty"` // the list has more than N items
}

func (p Page) size() (int, error) {
	if p.Size < 0 || p.Size > MaxPageSize {
		return 0, failed.Invalid("Page.Size must be between 0 and %d: got %d (0 means %d)", MaxPageSize, p.Size, DefaultPageSize)
	}
	if p.Size == 0 {
		return DefaultPageSize, nil
	}
	return p.Size, nil
}

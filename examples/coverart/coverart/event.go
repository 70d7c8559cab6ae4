package coverart

import (
	"fmt"
	"strings"
)

// DefaultSuffix is the suffix of the image if an event does not contain a suffix.
const DefaultSuffix = "jpg"

// IndexKey is the key of the index of a release. A delete event that contains IndexKey instead of the ID of an image
// deletes the index.
const IndexKey = "index.json"

// Delete is the body of a delete event.
type Delete struct {
	ID     string // number of the image, or IndexKey
	GID    string
	Suffix string
}

// Move is the body of a move event.
type Move struct {
	ID       string // number of the image
	Old, New string // gids of the releases
	Suffix   string
}

// ParseIndex parses the body of an index event, and returns the release's gid, converted to lower case.
func ParseIndex(body []byte) (gid string, err error) {
	fields, err := lines("index", "gid", body, 1, 1)
	if err != nil {
		return "", err
	}
	return parseGID("index", fields[0])
}

// ParseDelete reads the body of a delete event.
func ParseDelete(body []byte) (Delete, error) {
	fields, err := lines("delete", "id, gid[, suffix]", body, 2, 3)
	if err != nil {
		return Delete{}, err
	}
	d := Delete{ID: fields[0]}
	if d.ID != IndexKey {
		if err := checkImage("delete", d.ID); err != nil {
			return Delete{}, fmt.Errorf("%w, or %s", err, IndexKey)
		}
	}
	if d.GID, err = parseGID("delete", fields[1]); err != nil {
		return Delete{}, err
	}
	if d.Suffix, err = parseSuffix("delete", fields[2:]); err != nil {
		return Delete{}, err
	}
	return d, nil
}

// ParseMove reads the body of a move event.
func ParseMove(body []byte) (Move, error) {
	fields, err := lines("move", "id, old gid, new gid[, suffix]", body, 3, 4)
	if err != nil {
		return Move{}, err
	}
	m := Move{ID: fields[0]}
	if err := checkImage("move", m.ID); err != nil {
		return Move{}, err
	}
	if m.Old, err = parseGID("move", fields[1]); err != nil {
		return Move{}, err
	}
	if m.New, err = parseGID("move", fields[2]); err != nil {
		return Move{}, err
	}
	if m.Old == m.New {
		// The copy would replace the original, and the deletion of the original would then delete the only copy.
		return Move{}, fmt.Errorf("move event: old and new release are the same, %s", m.Old)
	}
	if m.Suffix, err = parseSuffix("move", fields[3:]); err != nil {
		return Move{}, err
	}
	return m, nil
}

// Body returns the message body of the event.
func (d Delete) Body() []byte { return []byte(d.ID + "\n" + d.GID + "\n" + d.Suffix) }

// Body returns the message body of the event.
func (m Move) Body() []byte { return []byte(m.ID + "\n" + m.Old + "\n" + m.New + "\n" + m.Suffix) }

// lines splits a body into lines. Their number must be between least and most. A line break at the end is ignored.
func lines(event, want string, body []byte, least, most int) ([]string, error) {
	fields := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	if n := len(fields); n < least || n > most {
		s := "s"
		if n == 1 {
			s = ""
		}
		return nil, fmt.Errorf("%s event: body must have the lines %s: got %d line%s", event, want, n, s)
	}
	return fields, nil
}

// gidLength is the length of an MBID, which is a UUID of the form 8-4-4-4-12.
const gidLength = 36

func parseGID(event, s string) (string, error) {
	ok := len(s) == gidLength
	for i := 0; ok && i < len(s); i++ {
		switch c := s[i]; i {
		case 8, 13, 18, 23:
			ok = c == '-'
		default:
			ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
		}
	}
	if !ok {
		return "", fmt.Errorf("%s event: %.40q is not the MBID of a release", event, s)
	}
	return strings.ToLower(s), nil
}

// maxID is the number of decimal digits of the largest signed 64-bit integer.
const maxID = 19

func checkImage(event, id string) error {
	if id == "" || len(id) > maxID || strings.Trim(id, "0123456789") != "" {
		return fmt.Errorf("%s event: %.40q is not the number of an image", event, id)
	}
	return nil
}

// maxSuffix is the maximum length of a suffix. All suffixes of MusicBrainz are shorter.
const maxSuffix = 8

func parseSuffix(event string, rest []string) (string, error) {
	if len(rest) == 0 || rest[0] == "" {
		return DefaultSuffix, nil
	}
	s := rest[0]
	if len(s) > maxSuffix || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return "", fmt.Errorf("%s event: %.40q is not the suffix of a file name", event, s)
	}
	return s, nil
}

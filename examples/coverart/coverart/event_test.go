package coverart_test

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

const (
	gidA = "76df3287-6cda-33eb-8e9a-044b5e15ffdd"
	gidB = "d6d1140f-5b4f-422e-a8b0-a8c43732701f"
)

func TestParse(t *testing.T) {
	if gid, err := coverart.ParseIndex([]byte(strings.ToUpper(gidA) + "\n")); err != nil || gid != gidA {
		t.Errorf("index: got %q, %v, want %q", gid, err, gidA)
	}
	deletes := map[string]coverart.Delete{
		"12\n" + gidA + "\npng":         {ID: "12", GID: gidA, Suffix: "png"},
		"12\n" + gidA:                   {ID: "12", GID: gidA, Suffix: "jpg"},
		"12\n" + gidA + "\n":            {ID: "12", GID: gidA, Suffix: "jpg"},
		"index.json\n" + gidA + "\njpg": {ID: "index.json", GID: gidA, Suffix: "jpg"},
	}
	for body, want := range deletes {
		if got, err := coverart.ParseDelete([]byte(body)); err != nil || got != want {
			t.Errorf("delete %q: got %+v, %v, want %+v", body, got, err, want)
		}
	}
	moves := map[string]coverart.Move{
		"12\n" + gidA + "\n" + gidB + "\npdf": {ID: "12", Old: gidA, New: gidB, Suffix: "pdf"},
		"12\n" + gidA + "\n" + gidB:           {ID: "12", Old: gidA, New: gidB, Suffix: "jpg"},
	}
	for body, want := range moves {
		if got, err := coverart.ParseMove([]byte(body)); err != nil || got != want {
			t.Errorf("move %q: got %+v, %v, want %+v", body, got, err, want)
		}
	}
}

// malformed maps each kind of event to invalid bodies, and each body to a part of the expected error.
var malformed = map[string]map[string]string{
	"index": {
		"":                        "not the MBID",
		"nonsense":                "not the MBID",
		gidA + "\nmore":           "got 2 lines",
		gidA + " ":                "not the MBID",
		gidA[:35] + "g":           "not the MBID",
		gidA[:8] + "0" + gidA[9:]: "not the MBID",
	},
	"delete": {
		"12":                             "must have the lines id, gid[, suffix]: got 1 line",
		"":                               "got 1 line",
		"x\n" + gidA:                     `"x" is not the number of an image, or index.json`,
		"-1\n" + gidA:                    "not the number",
		"12345678901234567890\n" + gidA:  "not the number",
		"12\n../" + gidA[3:]:             "not the MBID",
		"12\n" + gidA + "\nj/pg":         "not the suffix",
		"12\n" + gidA + "\nabcdefghi":    "not the suffix",
		"12\n" + gidA + "\njpg\n" + gidB: "got 4 lines",
	},
	"move": {
		"12\n" + gidA:                          "must have the lines id, old gid, new gid[, suffix]: got 2 lines",
		"12\n" + gidA + "\nnone\njpg":          `"none" is not the MBID`,
		"12\nnone\n" + gidA + "\njpg":          `"none" is not the MBID`,
		"12\n" + gidA + "\n" + gidA:            "are the same",
		"index.json\n" + gidA + "\n" + gidB:    "not the number",
		"12\n" + gidA + "\n" + gidB + "\nJPEG": "not the suffix",
	},
}

func TestParseMalformed(t *testing.T) {
	parse := map[string]func([]byte) error{
		"index":  func(b []byte) error { _, err := coverart.ParseIndex(b); return err },
		"delete": func(b []byte) error { _, err := coverart.ParseDelete(b); return err },
		"move":   func(b []byte) error { _, err := coverart.ParseMove(b); return err },
	}
	for event, bodies := range malformed {
		for body, want := range bodies {
			if err := parse[event]([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: got %v, want an error with %q", event, body, err, want)
			}
		}
	}
}

// A body that the parser accepts cannot address an object outside the release's bucket. An event that is formatted and
// parsed again does not change.
func FuzzParse(f *testing.F) {
	f.Add([]byte(gidA))
	f.Add([]byte("12\n" + gidA + "\njpg"))
	f.Add([]byte("index.json\n" + gidA))
	f.Add([]byte("12\n" + gidA + "\n" + gidB + "\npng"))
	for _, bodies := range malformed {
		for body := range bodies {
			f.Add([]byte(body))
		}
	}
	clean := func(t *testing.T, l coverart.Location) {
		if strings.ContainsAny(l.String(), "\n\x00%? ") || strings.Count(l.String(), "/") != 1 || strings.Contains(l.String(), "..") {
			t.Errorf("location must have one slash and no reserved characters: got %q", l)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if gid, err := coverart.ParseIndex(body); err == nil {
			clean(t, coverart.IndexLocation(gid))
		}
		if d, err := coverart.ParseDelete(body); err == nil {
			clean(t, coverart.ImageLocation(d.GID, d.ID, d.Suffix))
			if again, err := coverart.ParseDelete(d.Body()); err != nil || again != d {
				t.Errorf("round trip of %+v: got %+v, %v", d, again, err)
			}
		}
		if m, err := coverart.ParseMove(body); err == nil {
			clean(t, coverart.ImageLocation(m.Old, m.ID, m.Suffix))
			clean(t, coverart.ImageLocation(m.New, m.ID, m.Suffix))
			if again, err := coverart.ParseMove(m.Body()); err != nil || again != m {
				t.Errorf("round trip of %+v: got %+v, %v", m, again, err)
			}
		}
	})
}

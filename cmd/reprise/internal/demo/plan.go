package demo

import (
	"iter"
	"math/rand/v2"
	"strconv"

	"github.com/reprisemq/reprise/examples/coverart"
)

// planned is an event to publish.
type planned struct {
	event  string // routing key
	body   []byte
	upload *coverart.Location // an image that must be in the store before
	burst  bool               // follows the one before at once
}

// period is after how many events an endless plan repeats its special ones.
const period = DefaultEvents

// plan returns events without end, the same for the same seed. Most are
// ordinary; in every period there is one of each that cannot be done:
//
//	refused     an index event of a release the store will not have: its retries run out
//	malformed   a delete and a move event with a body that makes no sense: parked at once
//	unknown     an index event of a release that does not exist: skipped
//
// The refused one comes early, so that its retries fit into a short run.
//
// An image is either only ever deleted, or only ever moved, and always to the
// same release: so the events of different queues, which overtake one another,
// never contradict each other.
func plan(seed uint64, releases []coverart.Release, every int) iter.Seq[planned] {
	every = max(every, 8)
	special := map[int]planned{
		1:         {event: "index", body: []byte(refusedGID)},
		every / 4: {event: "delete", body: []byte(imageID(&releases[0]))},
		every / 3: {event: "index", body: []byte(unknownGID)},
		every / 2: {event: "move", body: []byte(imageID(&releases[1]) + "\n" + releases[1].GID + "\nnone\njpg")},
	}
	var ordinary []coverart.Release
	for _, r := range releases {
		if r.GID != refusedGID {
			ordinary = append(ordinary, r)
		}
	}
	return func(yield func(planned) bool) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var again planned // what the current burst repeats
		left := 0
		for n := 0; ; n++ {
			p, found := special[n%every]
			switch {
			case found:
			case left > 0:
				p, left = again, left-1
			default:
				p = ordinaryEvent(rng, ordinary)
				if p.event == "index" && rng.IntN(5) == 0 {
					again, left = p, 2+rng.IntN(3)
					again.burst = true
				}
			}
			if !yield(p) {
				return
			}
		}
	}
}

func ordinaryEvent(rng *rand.Rand, releases []coverart.Release) planned {
	i := rng.IntN(len(releases))
	r := &releases[i]
	if rng.IntN(5) < 2 {
		at := coverart.ImageLocation(r.GID, imageID(r), coverart.DefaultSuffix)
		if i%2 == 0 {
			d := coverart.Delete{ID: imageID(r), GID: r.GID, Suffix: coverart.DefaultSuffix}
			return planned{event: "delete", body: d.Body(), upload: &at}
		}
		m := coverart.Move{ID: imageID(r), Old: r.GID, New: releases[(i+1)%len(releases)].GID, Suffix: coverart.DefaultSuffix}
		return planned{event: "move", body: m.Body(), upload: &at}
	}
	return planned{event: "index", body: []byte(r.GID)}
}

func imageID(r *coverart.Release) string { return strconv.FormatInt(r.Images[0].ID, 10) }

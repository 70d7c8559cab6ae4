package rehearsal

import (
	"fmt"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

// The gids of the releases in the plan. All of them except unknown are in releases.sql.
const (
	loveBug   = "aff4a693-5970-4e2e-bd46-e2ee49c22de7"
	dummy     = "76df3287-6cda-33eb-8e9a-044b5e15ffdd"
	theCar    = "d6d1140f-5b4f-422e-a8b0-a8c43732701f"
	mergedCar = "5ee38258-8dfa-4d79-b2aa-6bbfceaf6cce" // merged into theCar
	faceIt    = "1ff94a0f-950e-448b-935c-9218740ca778"
	tension   = "7c88cc10-33b8-4737-b64c-4da9d24c19d5"
	volcano   = "14fbd2c0-0468-4cd7-9630-6aa655e11d5b" // the web service rejects the first two requests for it
	motorween = "403a79a8-0cbd-4a6c-b694-39a2cbd6dc75" // has no images
	refused   = "27dd50ed-1446-4f14-8cda-23fe2f476ccc" // its bucket rejects all writes
	unknown   = "5cbbe06e-ef56-414f-8b1a-00d9840d7119"
)

const (
	busyTimes = 2 // number of requests that the web service rejects
	burst     = 6 // number of equal events
	spent     = 5 // number of attempts after which retries are exhausted
)

// plannedEvent is an event and its expected outcome.
type plannedEvent struct {
	event string // index, delete or move: the routing key
	body  []byte
	about string

	times  int                 // number of publishes; 0 means 1
	upload []coverart.Location // objects to store before the event

	attempts        int // expected number; 0 means 1
	parked          bool
	note            string              // printed after "done"
	present, absent []coverart.Location // objects that must exist afterwards, and objects that must not
}

func plan() []plannedEvent {
	index := func(gid, about, note string) plannedEvent {
		return plannedEvent{
			event: "index", body: []byte(gid), about: about, note: note,
			present: []coverart.Location{coverart.IndexLocation(gid), coverart.MetadataLocation(gid)},
		}
	}
	burstOf := index(dummy, "Dummy · Portishead", fmt.Sprintf("once for %d equal events", burst))
	burstOf.times = burst
	busy := index(volcano, "Volcano · Jungle", "the web service has answered")
	busy.attempts = busyTimes + 1
	merged := index(mergedCar, "The Car · Arctic Monkeys, by its old id", "under the id it has now")
	merged.absent = merged.present
	merged.present = index(theCar, "", "").present

	from, to := coverart.ImageLocation(faceIt, "33813499854", "jpg"), coverart.ImageLocation(tension, "33813499854", "jpg")
	old := coverart.ImageLocation(tension, "35632652601", "png")
	oldIndex := coverart.IndexLocation(faceIt)
	return []plannedEvent{
		index(loveBug, "the Love Bug · m-flo", "an index of two images, and metadata"),
		burstOf,
		merged,
		index(motorween, "Motör‐ween · Motörhead, without images", "an empty index, and metadata"),
		{event: "index", body: []byte(unknown), about: "an unknown release", note: "skipped", absent: index(unknown, "", "").present},
		busy,
		{
			event: "index", body: []byte(refused), about: "Dance Fever (live …) · Florence + the Machine",
			attempts: spent, parked: true,
		},
		{
			event: "move", body: coverart.Move{ID: "33813499854", Old: faceIt, New: tension, Suffix: "jpg"}.Body(),
			about: "an image of Face It Alone, to Tension", note: "copied, then deleted where it was",
			upload: []coverart.Location{from}, present: []coverart.Location{to}, absent: []coverart.Location{from},
		},
		{
			event: "delete", body: coverart.Delete{ID: "35632652601", GID: tension, Suffix: "png"}.Body(),
			about: "an image of Tension", note: "deleted", upload: []coverart.Location{old}, absent: []coverart.Location{old},
		},
		{
			event: "delete", body: coverart.Delete{ID: coverart.IndexKey, GID: faceIt}.Body(),
			about: "index.json of Face It Alone", note: "deleted", upload: []coverart.Location{oldIndex}, absent: []coverart.Location{oldIndex},
		},
		{event: "delete", body: coverart.Delete{ID: "12", GID: unknown}.Body(), about: "a deleted image", note: "nothing to delete"},
		{event: "index", body: []byte("Dummy, please"), about: "an invalid body", parked: true},
		{event: "delete", body: []byte("829521842"), about: "an invalid body", parked: true},
		{
			event: "move", body: coverart.Move{ID: "829521842", Old: dummy, New: dummy}.Body(),
			about: "a move to the same release", parked: true,
		},
	}
}

func (p plannedEvent) copies() int       { return max(1, p.times) }
func (p plannedEvent) wantAttempts() int { return max(1, p.attempts) }

// buckets returns the buckets of the objects that the plan uploads or expects.
func buckets(all []plannedEvent) []string {
	var names []string
	seen := map[string]bool{}
	for _, p := range all {
		for _, ls := range [][]coverart.Location{p.upload, p.present} {
			for _, l := range ls {
				if !seen[l.Bucket] {
					seen[l.Bucket] = true
					names = append(names, l.Bucket)
				}
			}
		}
	}
	return names
}

package ledger

// term is a number that a sample has of an account. New ones go to the end, since
// samples are stored as lists.
type term int

const (
	// By the broker.
	published  term = iota // to the work queue and its levels, in all
	taken                  // acknowledged by whoever consumes from the work queue, in all
	ready                  // in the work queue
	unacked                // in the work queue, with a consumer
	waiting                // in wait queues and levels
	inParking              // in failed queues
	outParking             // acknowledged by whoever consumes from failed queues, in all
	resets                 // how often the broker began to count anew

	// By the archive.
	failing
	replaying
	replayed
	discarded
	removed

	// By workers, in all.
	done
	debounced
	retried
	gaveUp // parked
	dropped
	lost
	refused // copies that were not confirmed, and published again
	moved   // published to the work queue by a worker, in place of what it had from there

	termCount
)

// Terms are all of them.
type terms [termCount]int64

// came is what has come in from outside.
func (t *terms) came() int64 { return t[published] - t[moved] }

// stock is what has come in and is somewhere, or left by way of the archive.
func (t *terms) stock() int64 {
	return t[ready] + t[unacked] + t[waiting] + t[inParking] + t[failing] + t[replaying] + t[replayed] + t[discarded] + t[removed]
}

// ended is what workers are done with.
func (t *terms) ended() int64 { return t[done] + t[debounced] }

// missing is the difference that the equation has, of an account opened with other
// terms.
func (t *terms) missing(opening *terms) int64 {
	return t.came() - opening.came() - (t.ended() - opening.ended()) - (t.stock() - opening.stock())
}

// motion is how much has moved around a sample. What is left out moves with
// something else. What the equation has of a count is as much too early as it grew
// since the sample before, or as much too late as it grows until the next one; it
// cannot be both. What goes from place to place may have left one before it was looked
// at, and come to the other after.
func motion(before, at, after *terms) int64 {
	n := int64(0)
	for i := range at {
		a, b := abs(at[i]-before[i]), abs(after[i]-at[i])
		switch term(i) {
		case taken, outParking, dropped, lost, refused:
		case published, moved, done, debounced:
			n += max(a, b)
		default:
			n += a + b
		}
	}
	return n
}

func abs(n int64) int64 { return max(n, -n) }

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

	termCount
)

// Terms are all of them.
type terms [termCount]int64

// came is what has come in from outside.
func (t *terms) came() int64 { return t[published] }

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

// motion is by how much the difference of a sample can be wrong, since places were
// not looked at in the same moment: in each, what moved there since the sample before,
// or until the next one, whichever is more. A message that left one place before it was
// looked at, and came to the other after, is in none; it is in both if it was the other
// way round. What is in a place may stay the same while some come and as many go:
// what workers have put there says how many.
func motion(before, at, after *terms) int64 {
	n := int64(0)
	for _, place := range places {
		most := int64(0)
		for _, count := range place {
			x, y, z := before.sum(count), at.sum(count), after.sum(count)
			most = max(most, abs(y-x), abs(z-y))
		}
		n += most
	}
	return n
}

// places are where messages are seen, each with the counts that say how many move there.
var places = [][][]term{
	{{published}},
	{{done}},
	{{debounced}},
	{{ready, unacked}}, // of one moment
	{{waiting}, {retried}},
	{{inParking}, {gaveUp}},
	{{failing, replaying, replayed, discarded, removed}}, // the same
	{{resets}},
}

func (t *terms) sum(of []term) (n int64) {
	for _, i := range of {
		n += t[i]
	}
	return n
}

func abs(n int64) int64 { return max(n, -n) }

package ledger

// term is the index of a number in a sample. Add new terms at the end, because samples are stored as lists.
type term int

const (
	// Figures of the broker.
	published  term = iota // published to the work queue and its levels, accumulated.
	taken                  // acknowledged by consumers of the work queue, accumulated.
	ready                  // in the work queue
	unacked                // in the work queue, delivered to a consumer
	waiting                // in wait queues and levels
	inParking              // in failed queues
	outParking             // acknowledged by consumers of failed queues, accumulated
	resets                 // number of samples that found a reset counter or a deleted queue

	// Figures of the archive.
	failing
	replaying
	replayed
	discarded
	removed

	// Accumulated figures of the workers.
	done
	debounced
	retried
	gaveUp // parked
	dropped
	lost
	refused // copies that were not confirmed and were republished

	got // requested from the work queue by basic.get, accumulated

	rejected // part of retried and gaveUp: by a rejection; accumulated by the workers

	termCount
)

// terms contains the value of each term.
type terms [termCount]int64

// incoming returns the number of published messages.
func (t *terms) incoming() int64 { return t[published] }

// stock returns the number of published messages that are in a queue or in the archive, or have left through the archive.
func (t *terms) stock() int64 {
	return t[ready] + t[unacked] + t[waiting] + t[inParking] + t[failing] + t[replaying] + t[replayed] + t[discarded] + t[removed]
}

// ended returns the number of messages that the workers have processed.
func (t *terms) ended() int64 { return t[done] + t[debounced] }

// missing returns the deviation of the equation for an account with the given opening.
func (t *terms) missing(opening *terms) int64 {
	return t.incoming() - opening.incoming() - (t.ended() - opening.ended()) - (t.stock() - opening.stock())
}

// motion returns the maximum error of the deviation in a sample. The error results from reading the places at
// different times. It is at most the sum, over all places, of the larger of two changes: from the previous sample, and
// to the next sample. A message that moves between two places while they are read may be counted in neither place or
// in both. The number in a place stays constant while as many messages enter as leave. In this case the counts of the
// workers show the number of moved messages.
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

// places lists the places in which a message can be. Each place has one or more sums of terms. The changes of each sum
// indicate how many messages moved.
var places = [][][]term{
	{{published}},
	{{done}},
	{{debounced}},
	{{ready, unacked}}, // read at the same time
	{{waiting}, {retried}},
	{{inParking}, {gaveUp}},
	{{failing, replaying, replayed, discarded, removed}}, // read at the same time
	{{resets}},
}

func (t *terms) sum(of []term) (n int64) {
	for _, i := range of {
		n += t[i]
	}
	return n
}

func abs(n int64) int64 { return max(n, -n) }

// acked returns the number of deliveries that the workers have acknowledged.
func (t *terms) acked() int64 {
	return t.sum([]term{done, debounced, retried, gaveUp, lost}) - t[rejected]
}

// acknowledged returns the number of acknowledgements in the work queue since before that no worker has reported.
func (t *terms) acknowledged(before *terms) int64 {
	return t[taken] - before[taken] - (t.acked() - before.acked())
}

// accounted is acked and the messages that were requested by basic.get, for example by an operator.
func (t *terms) accounted() int64 { return t.acked() + t[got] }

// unreported is acknowledged without the messages that were requested by basic.get.
func (t *terms) unreported(before *terms) int64 {
	return t[taken] - before[taken] - (t.accounted() - before.accounted())
}

package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise/topology/preset"
)

// frame returns everything the live view shows of a moment, in at most height
// lines where height allows for the tables.
func frame(s state, width, height int) []line {
	lines := introLines(s.intro, width)
	lines = append(lines, line{})
	lines = append(lines, tableLines(s, width, true)...)
	lines = append(lines, line{})
	lines = append(lines, progressLines(s, width)...)
	room := min(height-len(lines)-2, 14)
	if room < 1 || len(s.last) == 0 {
		return lines
	}
	lines = append(lines, line{})
	for _, e := range s.last[max(0, len(s.last)-room):] {
		lines = append(lines, entryLine(e, width))
	}
	return lines
}

// introLines say what is going on.
func introLines(i intro, width int) []line {
	const margin = 14
	row := func(s style, name, what string) []line {
		var lines []line
		head := line{}.add(s, "  "+name).to(margin)
		for _, t := range wrap(what, max(20, width-margin)) {
			lines = append(lines, head.add(dim, t))
			head = line{}.to(margin)
		}
		return lines
	}
	lines := []line{
		line{}.add(bold, "reprise demo").add(normal, " · the cover art indexer of MusicBrainz, on "+i.broker),
	}
	lines = append(lines, row(green, "work", "index, delete, move: cover art of real releases, in an S3 store")...)
	lines = append(lines, row(yellow, "fails", "now and then, the store answers 503 SlowDown")...)
	lines = append(lines, row(yellow, "comes back", fmt.Sprintf("from .retry after %s (4h in the real system), %d times at most",
		i.retryDelay, preset.CoverArtRetries))...)
	return append(lines, row(red, "ends", "in .failed: a release always refused, bodies that make no sense")...)
}

// Columns of the table of queues.
const (
	colReady   = 25
	colUnacked = 32
	colHistory = 43
	roleWidth  = 32
	wideEnough = 110 // for what the queues are for
)

var roles = map[string]string{
	preset.CoverArtIndexQueue:  "writes index.json and metadata",
	preset.CoverArtDeleteQueue: "deletes an image",
	preset.CoverArtMoveQueue:   "copies an image, deletes the old",
	preset.CoverArtRetryQueue:  "waits, then back to its queue",
	preset.CoverArtFailedQueue: "for a person to look at",
}

func tableLines(s state, width int, history bool) []line {
	head := line{}.add(dim, "queue").to(colReady).add(dim, "ready").to(colUnacked).add(dim, "unacked").to(colHistory)
	role := width >= wideEnough || !history
	if role {
		head = head.add(dim, "what it does").to(colHistory + roleWidth + 2)
	}
	if history {
		head = head.add(dim, "depth over time")
	}
	lines := []line{head}
	for _, q := range s.queues {
		l := line{}.add(queueStyle(q), q.Name).to(colReady).add(numberStyle(q.Ready), fmt.Sprintf("%5d", q.Ready)).to(colUnacked)
		if q.Unacked == Unknown {
			l = l.add(dim, fmt.Sprintf("%7s", "?"))
		} else {
			l = l.add(numberStyle(q.Unacked), fmt.Sprintf("%7d", q.Unacked))
		}
		l = l.to(colHistory)
		if role {
			l = l.add(dim, roles[q.Name]).to(colHistory + roleWidth + 2)
		}
		if history {
			l = l.add(historyStyle(q.Name), sparkline(q.history, width-l.width()))
		}
		lines = append(lines, l)
	}
	return lines
}

func queueStyle(q queueState) style {
	if q.Ready+max(0, q.Unacked) == 0 {
		return normal
	}
	return historyStyle(q.Name)
}

func historyStyle(name string) style {
	switch name {
	case preset.CoverArtRetryQueue:
		return yellow
	case preset.CoverArtFailedQueue:
		return red
	}
	return cyan
}

func numberStyle(n int) style {
	if n == 0 {
		return dim
	}
	return normal
}

// sparkline draws the newest samples that fit, each at most 8 high. The scale
// is absolute up to 8 messages, so that a single one does not look like a flood.
func sparkline(history []int, width int) string {
	if width <= 0 {
		return ""
	}
	history = history[max(0, len(history)-width):]
	top := 8
	for _, n := range history {
		top = max(top, n)
	}
	var out strings.Builder
	for _, n := range history {
		if n == 0 {
			out.WriteRune(' ')
			continue
		}
		out.WriteRune([]rune("▁▂▃▄▅▆▇█")[(n*8+top-1)/top-1])
	}
	return out.String()
}

// progressLines show where the messages are, as numbers and as a bar.
func progressLines(s state, width int) []line {
	f := s.figures
	in := fmt.Sprintf("in %d", f.in)
	if s.target > 0 {
		in = fmt.Sprintf("in %d of %d", f.in, s.target)
	}
	total := max(s.target, f.in, 1)
	counts := line{}.add(bold, in).add(normal, "  =  ").
		add(green, fmt.Sprintf("%d done", f.done)).add(normal, "  +  ").
		add(red, fmt.Sprintf("%d failed", f.failed)).add(normal, "  +  ").
		add(yellow, fmt.Sprintf("%d waiting", f.waiting())).
		add(dim, fmt.Sprintf("    %d retries", f.retry))
	if clock := clockOf(s.elapsed); counts.width()+2+len(clock) <= width {
		counts = counts.to(width-len(clock)).add(dim, clock)
	}
	part := func(n int) int { return n * width / total }
	done, failed, waiting := part(f.done), part(f.failed), part(f.waiting())
	if f.failed > 0 {
		failed = max(failed, 1) // a rare failure is still one
	}
	done = min(done, width-failed)
	waiting = min(waiting, width-failed-done)
	if f.in == total { // what rounding left over
		rest := width - done - failed - waiting
		if f.waiting() > 0 {
			waiting += rest
		} else {
			done += rest
		}
	}
	bar := line{}.add(green, strings.Repeat("█", done)).add(red, strings.Repeat("▓", failed)).
		add(yellow, strings.Repeat("▒", waiting))
	lines := []line{counts, bar.add(dim, strings.Repeat("·", max(0, width-bar.width())))}
	if s.phase != "" {
		lines = append(lines, line{}.add(bold, s.phase))
	}
	return lines
}

// entryLine tells of an attempt.
func entryLine(e entry, width int) line {
	colour := map[string]style{outcomeDone: green, outcomeRetry: yellow, outcomeFailed: red}[e.outcome]
	about := 36
	if width < wideEnough && width < plainWidth {
		about = 28
	}
	l := line{}.add(dim, fmt.Sprintf("%6s", tenths(e.at))).to(8).
		add(colour, e.outcome).to(16).
		add(normal, e.event).to(24).
		add(normal, fit(e.about, about)).to(24 + about + 2)
	note := shorten(e.note)
	if e.attempt > 1 {
		note = strings.TrimSpace(fmt.Sprintf("attempt %d  %s", e.attempt, note))
	}
	return l.add(dim, note)
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

func clockOf(d time.Duration) string {
	s := int(d.Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

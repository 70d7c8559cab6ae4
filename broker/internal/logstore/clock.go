package logstore

import "time"

// clockTolerance is the difference between two clocks that warnClock ignores.
const clockTolerance = time.Minute

// warnClock logs by how much the clock is behind the last write to a database. Messages expire at a time of the clock, so
// all waiting messages are late by the difference. The store cannot correct their times, because it does not know which of
// the two times is wrong.
func (d *disk) warnClock(database string) {
	names, err := d.fs.List(database)
	if err != nil {
		return // opening the database reports the error
	}
	var last time.Time
	for _, name := range names {
		about, err := d.fs.Stat(d.fs.PathJoin(database, name))
		if err != nil {
			continue
		}
		if written := about.ModTime(); written.After(last) {
			last = written
		}
	}
	if behind := time.Until(last); behind > clockTolerance {
		d.log.Warn("clock is behind the last write; messages that expire or wait for a retry are late by the difference "+
			"(if the clock is wrong, correct it and restart the broker)", "behind", behind.Round(time.Second), "last_write", last)
	}
}

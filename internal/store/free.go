package store

// Free implements [Store].
func (d *disk) Free() (uint64, error) {
	usage, err := d.fs.GetDiskUsage(d.dir)
	return usage.AvailBytes, err
}

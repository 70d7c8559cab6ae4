package diskstore

// Queues implements [store.Store].
func (d *disk) Queues() (all []uint64, err error) {
	err = d.scan([]byte{prefixCount}, []byte{prefixCount + 1}, func(key, value []byte) (more bool, err error) {
		c, err := parseCount(key, value)
		if err != nil {
			return false, err
		}
		if len(all) == 0 || all[len(all)-1] != c.level.queue {
			all = append(all, c.level.queue)
		}
		return true, nil
	})
	return all, err
}

package failed

// Apply applies the edit to a content.
func (e *BulkEdit) Apply(c Content, secrets []Rule) (Content, error) {
	x, err := e.Compile(secrets)
	if err != nil {
		return c, err
	}
	return x.Apply(c)
}

package api

// Error is the body of every answer that is not a success.
type Error struct {
	Status int    `json:"-"`
	Text   string `json:"error"`
	Advice string `json:"advice"` // what to do about it
}

func (e *Error) Error() string { return e.Text + ": " + e.Advice }

package run

// ResumeError says why a run cannot be resumed or replayed.
type ResumeError struct {
	RunID  string
	Reason string
	hint   string
}

func (e *ResumeError) Error() string {
	if e.RunID == "" {
		return "the run cannot be taken up: " + e.Reason
	}
	return "run " + e.RunID + " cannot be taken up: " + e.Reason
}

// Hint says what to do instead.
func (e *ResumeError) Hint() string { return e.hint }

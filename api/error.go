package api

// Error is the one shape of every failure.
type Error struct {
	Kind    string `json:"kind" doc:"A word from a closed list; decide on it, not on the message" example:"not_found"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty" doc:"What to do next"`

	silent bool // see IsSilent
}

// Error returns the message; the hint is apart, to be shown on its own line.
func (e *Error) Error() string { return e.Message }

// The kinds of error that a client makes itself. They are among the server's.
const (
	kindInternal    = "internal"
	kindInvalid     = "invalid"
	kindAccess      = "access_denied"
	kindUnavailable = "unavailable"
	kindInterrupted = "interrupted"
)

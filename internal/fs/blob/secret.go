package blob

import (
	"fmt"
	"log/slog"
)

// hidden is what is printed of a Secret.
const hidden = "(secret)"

// Secret holds a credential that must never be printed: in whatever way it is
// formatted, encoded or logged, also deep inside another value, its text does
// not show. The zero value is empty. It may be copied.
type Secret struct {
	// A function, because package fmt prints the fields of a private field
	// without asking any method; of a function it prints the address.
	text func() string
}

// NewSecret returns a secret that holds text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: func() string { return text }}
}

// Reveal returns the text. Its caller gives it to an SDK and to nothing else.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return s.text()
}

// Empty reports whether there is no text.
func (s Secret) Empty() bool { return s.text == nil }

// Format implements fmt.Formatter, for all verbs.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// MarshalText implements encoding.TextMarshaler, and with it JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

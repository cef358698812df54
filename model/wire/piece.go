package wire

import "github.com/rein-sh/rein/model"

// Piece is a part of a message, for what a vendor wants returned in the order it
// came: so many bytes of the text, or one of the calls.
type Piece struct {
	Text int  `json:"text,omitempty"`
	Call *int `json:"call,omitempty"` // index in Message.Calls
}

// Pieces are the parts of msg when nothing is known of their order: the text,
// then the calls.
func Pieces(msg model.Message) []Piece {
	out := []Piece{{Text: len(msg.Text)}}
	for i := range msg.Calls {
		out = append(out, Piece{Call: &i})
	}
	return out
}

// Check adds up the pieces of one message. The zero value has none.
type Check struct {
	text, calls int
	wrong       bool
}

// Add takes the next piece.
func (c *Check) Add(p Piece) {
	switch {
	case p.Call != nil:
		c.wrong = c.wrong || *p.Call != c.calls
		c.calls++
	case p.Text < 0:
		c.wrong = true
	default:
		c.text += p.Text
	}
}

// Makes reports whether the pieces are all of msg, its calls in order.
func (c *Check) Makes(msg model.Message) bool {
	return !c.wrong && c.text == len(msg.Text) && c.calls == len(msg.Calls)
}

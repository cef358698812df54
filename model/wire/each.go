package wire

// A Stream is the events of a reply, as the vendors' SDKs hand them over.
type Stream[E any] interface {
	Next() bool
	Current() E
	Err() error
	Close() error
}

// Each gives add the events of a call's stream until add fails, whose error it
// then returns, or the stream ends: then failure says of what, nil for its
// proper end.
func Each[E any](call *Call, s Stream[E], add func(*E) error, failure func(*Call, error) error) error {
	for s.Next() {
		event := s.Current()
		if err := add(&event); err != nil {
			_ = s.Close() // what matters has already gone wrong
			return err
		}
	}
	return failure(call, s.Err())
}

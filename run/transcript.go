package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rein-sh/rein/secret"
)

// transcript is what was said, one JSON object a line. The hash of each line,
// without its newline, is in the audit log.
type transcript struct {
	masker *secret.Masker
	mu     sync.Mutex
	file   *os.File
	n      int
}

type transcriptEntry struct {
	Entry int             `json:"entry"`
	Time  time.Time       `json:"time"`
	Kind  string          `json:"kind"`
	Step  int             `json:"step"`
	Data  json.RawMessage `json:"data"`
}

// lines are buffers in which entries are put together.
var lines = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKeptLine bounds a buffer that is used again, in bytes: one long entry is not
// kept in memory.
const maxKeptLine = 64 << 10

// write puts the entry into b as JSON, with data, masked, as its Data.
func (e transcriptEntry) write(b *bytes.Buffer, data any, m *secret.Masker) error {
	at, err := e.Time.MarshalJSON()
	if err != nil {
		return err
	}
	kind, err := json.Marshal(e.Kind)
	if err != nil {
		return err
	}
	head := b.AvailableBuffer()
	head = strconv.AppendInt(append(head, `{"entry":`...), int64(e.Entry), 10)
	head = append(append(head, `,"time":`...), at...)
	head = append(append(head, `,"kind":`...), kind...)
	head = strconv.AppendInt(append(head, `,"step":`...), int64(e.Step), 10)
	b.Write(append(head, `,"data":`...))
	from := b.Len()
	if err := json.NewEncoder(b).Encode(data); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the newline
	masked := m.JSON(b.Bytes()[from:])
	b.Truncate(from)
	b.Write(masked) // itself in its place, where nothing was masked
	b.WriteByte('}')
	return nil
}

func newTranscript(path string, m *secret.Masker) (*transcript, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &transcript{masker: m, file: f}, nil
}

// openTranscript goes on with the transcript of a run: what the audit log does
// not name of its end is cut off.
func openTranscript(path string, m *secret.Masker, rec *record) (*transcript, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(rec.offset); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &transcript{masker: m, file: f, n: rec.entries}, nil
}

func (t *transcript) append(e Said) (int, string, error) {
	line := lines.Get().(*bytes.Buffer)
	defer func() {
		if line.Cap() <= maxKeptLine {
			line.Reset()
			lines.Put(line)
		}
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := transcriptEntry{Entry: t.n + 1, Time: time.Now(), Kind: string(e.Kind), Step: e.Step}
	if err := entry.write(line, e.Data, t.masker); err != nil {
		return 0, "", err
	}
	hash := hash(line.Bytes())
	line.WriteByte('\n')
	if _, err := t.file.Write(line.Bytes()); err != nil {
		return 0, "", err
	}
	t.n++
	return t.n, hash, nil
}

func (t *transcript) close() error {
	if t == nil {
		return nil
	}
	return t.file.Close()
}

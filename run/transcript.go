package run

import (
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

// line is the entry as JSON. Data, which is compact already, is put in as it is,
// neither read nor copied once more.
func (e transcriptEntry) line() ([]byte, error) {
	at, err := e.Time.MarshalJSON()
	if err != nil {
		return nil, err
	}
	kind, err := json.Marshal(e.Kind)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 128+len(e.Data))
	b = strconv.AppendInt(append(b, `{"entry":`...), int64(e.Entry), 10)
	b = append(append(b, `,"time":`...), at...)
	b = append(append(b, `,"kind":`...), kind...)
	b = strconv.AppendInt(append(b, `,"step":`...), int64(e.Step), 10)
	return append(append(append(b, `,"data":`...), e.Data...), '}'), nil
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
	data, err := json.Marshal(e.Data)
	if err != nil {
		return 0, "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	line, err := transcriptEntry{Entry: t.n + 1, Time: time.Now(), Kind: string(e.Kind), Step: e.Step, Data: t.masker.JSON(data)}.line()
	if err != nil {
		return 0, "", err
	}
	if _, err := t.file.Write(append(line, '\n')); err != nil {
		return 0, "", err
	}
	t.n++
	return t.n, hash(line), nil
}

func (t *transcript) close() error {
	if t == nil {
		return nil
	}
	return t.file.Close()
}

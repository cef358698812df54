package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// The end of every line: the hash member, which is not hashed.
const (
	hashOpen  = `,"hash":"`
	hashClose = `"}`
	hashLen   = 2 * sha256.Size
	hashTail  = len(hashOpen) + hashLen + len(hashClose)
)

// usualData is more than the data of most records has, in bytes.
const usualData = 512

// marshal is json.Marshal without escaping for HTML, so that the log reads as
// it was written and a JSON tool prints the same bytes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(usualData)
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// encode appends the line of r, newline included, to body, which is empty, and
// returns its hash. Data is compact JSON already: it is put in as it is, neither
// read nor copied once more.
func encode(body []byte, r Record) (line []byte, hash string, err error) {
	body = strconv.AppendUint(append(body, `{"seq":`...), r.Seq, 10)
	at, err := r.Time.MarshalJSON()
	if err != nil {
		return nil, "", err
	}
	body = append(append(body, `,"time":`...), at...)
	for _, m := range []struct{ name, value string }{
		{"kind", string(r.Kind)}, {"run_id", r.RunID}, {"trace_id", r.TraceID}, {"sandbox_id", r.SandboxID}, {"call_id", r.CallID},
	} {
		if m.value == "" && m.name != "kind" {
			continue
		}
		body = append(append(append(body, `,"`...), m.name...), `":`...)
		if isPlain(m.value) {
			body = append(append(append(body, '"'), m.value...), '"')
			continue
		}
		value, err := marshal(m.value)
		if err != nil {
			return nil, "", err
		}
		body = append(body, value...)
	}
	if len(r.Data) > 0 {
		body = append(append(body, `,"data":`...), r.Data...)
	}
	body = append(append(append(body, `,"prev":"`...), r.Prev...), '"')
	hash = hashOf(body)
	line = append(body, hashOpen...)
	line = append(line, hash...)
	return append(line, hashClose+"\n"...), hash, nil
}

// isPlain reports whether s is itself between the quotes of JSON, as ids are.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// hashOf hashes the line that begins with body and has no hash member.
func hashOf(body []byte) string {
	h := sha256.New()
	h.Write(body)
	h.Write([]byte("}"))
	return hex.EncodeToString(h.Sum(nil))
}

// decode reads one line, without its newline, and checks its own hash.
func decode(line []byte) (Record, error) {
	cut := len(line) - hashTail
	if cut < 0 || string(line[cut:cut+len(hashOpen)]) != hashOpen || string(line[len(line)-len(hashClose):]) != hashClose {
		return Record{}, errors.New("it is no record: it does not end with a hash")
	}
	stated := string(line[cut+len(hashOpen) : len(line)-len(hashClose)])
	if hashOf(line[:cut]) != stated {
		return Record{}, errors.New("its hash is not that of its content")
	}
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, errors.New("it is no record: " + err.Error())
	}
	if r.Hash != stated {
		return Record{}, errors.New("it is no record: it has more than one hash")
	}
	return r, nil
}

// lines reads lines in bounded memory.
type lines struct {
	r   *bufio.Reader
	buf []byte
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, 64<<10)} }

// line is one line without its newline. Its bytes are valid until the next read.
type line struct {
	text     []byte
	newline  bool // it ended with one
	overlong bool // longer than MaxLine; text is not all of it
}

// next returns the next line; io.EOF when there is none.
func (l *lines) next() (line, error) {
	l.buf = l.buf[:0]
	var out line
	for {
		piece, err := l.r.ReadSlice('\n')
		if len(l.buf)+len(piece) > MaxLine {
			out.overlong = true
		} else {
			l.buf = append(l.buf, piece...)
		}
		switch {
		case err == nil:
			out.newline, out.text = true, bytes.TrimSuffix(l.buf, []byte("\n"))
			return out, nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.buf) == 0 && !out.overlong:
			return line{}, io.EOF
		case errors.Is(err, io.EOF):
			out.text = l.buf
			return out, nil
		}
		return line{}, err
	}
}

package secret

import (
	"bytes"
	"encoding/json"
)

// JSON returns a valid JSON text masked, as valid JSON: strings and numbers are
// masked by what they mean, however they are escaped, and a number with a
// secret in it becomes a string. A value that only shows across several of them
// turns the whole text into one masked string. Invalid JSON is masked as by
// Bytes.
func (m *Masker) JSON(b []byte) []byte {
	found := m.matcher()
	if found == nil || len(b) == 0 {
		return b
	}
	if !json.Valid(b) {
		return m.Bytes(b)
	}
	out := make([]byte, 0, len(b)+64)
	for i := 0; i < len(b); {
		n := scalar(b[i:])
		if n == 0 {
			out = append(out, b[i])
			i++
			continue
		}
		out = append(out, m.scalar(b[i:i+n])...)
		i += n
	}
	again, _, clean := new(sweep).replace(found.across, out, true, nil)
	if clean {
		return out
	}
	if !json.Valid(again) {
		return quote(string(again))
	}
	return again
}

// scalar returns the length of the string or number at the start of valid JSON,
// 0 when there is neither.
func scalar(b []byte) int {
	if b[0] == '"' {
		for i := 1; ; i++ {
			switch b[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
	}
	n := 0
	for n < len(b) && bytes.IndexByte([]byte("+-.0123456789"), b[n]) >= 0 || n > 0 && n < len(b) && b[n]|0x20 == 'e' {
		n++
	}
	return n
}

// scalar returns a string or number literal masked; itself when nothing is.
func (m *Masker) scalar(literal []byte) []byte {
	text := string(literal)
	if literal[0] == '"' {
		if err := json.Unmarshal(literal, &text); err != nil {
			return quote(m.String(string(literal)))
		}
	}
	if masked := m.String(text); masked != text {
		return quote(masked)
	}
	return literal
}

// quote returns s as a JSON string, without escaping for HTML.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string can always be encoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

package patch

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Git's base 85: five digits for four bytes, most significant first, in lines
// of at most 52 bytes whose first character says how many.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

const lineBytes = 52

func writeLiteral(b *bytes.Buffer, data []byte) {
	fmt.Fprintf(b, "literal %d\n", len(data))
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	z.Write(data) // a bytes.Buffer does not fail
	z.Close()
	for packed.Len() > 0 {
		encodeLine(b, packed.Next(lineBytes))
	}
	b.WriteByte('\n')
}

func encodeLine(b *bytes.Buffer, line []byte) {
	if n := len(line); n <= 26 {
		b.WriteByte(byte('A' + n - 1))
	} else {
		b.WriteByte(byte('a' + n - 27))
	}
	for len(line) > 0 {
		var word uint32
		for i := range 4 {
			word <<= 8
			if i < len(line) {
				word |= uint32(line[i])
			}
		}
		line = line[min(4, len(line)):]
		var digits [5]byte
		for i := 4; i >= 0; i-- {
			digits[i] = alphabet[word%85]
			word /= 85
		}
		b.Write(digits[:])
	}
	b.WriteByte('\n')
}

var errBase85 = errors.New("badly encoded binary line")

func decodeLine(line []byte) ([]byte, error) {
	if len(line) < 6 || (len(line)-1)%5 != 0 {
		return nil, errBase85
	}
	n := 0
	switch c := line[0]; {
	case c >= 'A' && c <= 'Z':
		n = int(c-'A') + 1
	case c >= 'a' && c <= 'z':
		n = int(c-'a') + 27
	default:
		return nil, errBase85
	}
	line = line[1:]
	if n > len(line)/5*4 || n <= (len(line)/5-1)*4 {
		return nil, errBase85
	}
	out := make([]byte, 0, lineBytes)
	for ; len(line) > 0; line = line[5:] {
		var word uint64
		for _, c := range line[:5] {
			d := strings.IndexByte(alphabet, c)
			if d < 0 {
				return nil, errBase85
			}
			word = word*85 + uint64(d)
		}
		if word > 1<<32-1 {
			return nil, errBase85
		}
		out = append(out, byte(word>>24), byte(word>>16), byte(word>>8), byte(word))
	}
	return out[:n], nil
}

// inflate unpacks data that must be exactly size bytes.
func inflate(packed []byte, size int64) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, size+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("binary content is not the %d bytes announced", size)
	}
	return data, nil
}

package tool_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Output that is no text says so, whole and cut, and of either stream.
func TestBinaryOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for command, want := range map[string][]string{
		`printf 'a\000b'`:                              {"stdout"},
		`printf 'a\000b' >&2`:                          {"stderr"},
		`printf 'a\000b'; printf 'a\000b' >&2`:         {"stdout", "stderr"},
		`printf 'caf\351 text'`:                        nil,
		`yes text | head -c 200000; printf 'a\000b'`:   {"stdout"},
		`printf 'a\000b\n'; yes text | head -c 100000`: {"stdout"},
		`yes text | head -c 100000`:                    nil,
	} {
		r := b.sh(command)
		if d := cmp.Diff(want, r.Binary); d != "" {
			t.Errorf("%s: %s", command, d)
		}
		if d := cmp.Diff(want, r.Shortened(512).Binary); d != "" {
			t.Errorf("%s, shortened: %s", command, d)
		}
	}
	if data, err := json.Marshal(b.sh(`printf '\000'`)); err != nil || !bytes.Contains(data, []byte(`"binary":["stdout"]`)) {
		t.Errorf("%s, %v", data, err)
	}
}

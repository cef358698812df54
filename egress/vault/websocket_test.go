package vault

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// frame is one of a client.
func frame(first byte, payload string) []byte {
	b := []byte{first, 0x80}
	switch n := len(payload); {
	case n < 126:
		b[1] |= byte(n)
	case n < 1<<16:
		b[1] |= 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i&3])
	}
	return b
}

func TestMessages(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	ph := v.Environment()["KEY"]
	r, _ := http.NewRequest("GET", "https://api.example.org/", nil)
	g, err := v.Judge(Target{"api.example.org", 443}, r, "/")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		frames [][]byte
		rule   string
	}{
		{"text", [][]byte{frame(0x81, "hello"), frame(0x82, string(make([]byte, 70_000))), frame(0x88, "\x03\xe8")}, ""},
		{"beginning of a placeholder", [][]byte{frame(0x81, "x"+ph[:20]), frame(0x81, "y")}, ""},
		{"in fragments, with a ping between", [][]byte{frame(0x01, "a"), frame(0x89, "ping"), frame(0x80, "b")}, ""},
		{"placeholder", [][]byte{frame(0x81, "x "+ph+" y")}, RuleLeak},
		{"placeholder in fragments", [][]byte{frame(0x01, "x"+ph[:10]), frame(0x89, ""), frame(0x00, ph[10:30]), frame(0x80, ph[30:])}, RuleLeak},
		{"placeholder in a ping", [][]byte{frame(0x89, ph)}, RuleLeak},
		{"extension", [][]byte{frame(0xc1, "x")}, RuleForm},
		{"no mask", [][]byte{{0x81, 1, 'x'}}, RuleForm},
		{"long ping", [][]byte{frame(0x89, string(make([]byte, 200)))}, RuleForm},
	} {
		for _, slow := range []bool{false, true} {
			sent := bytes.Join(c.frames, nil)
			var src io.Reader = bytes.NewReader(sent)
			if slow {
				src = iotest.OneByteReader(src)
			}
			got, err := io.ReadAll(g.Messages(src))
			if c.rule == "" {
				if err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%s: %d bytes of %d, %v", c.name, len(got), len(sent), err)
				}
				continue
			}
			if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Rule != c.rule || !bytes.HasPrefix(sent, got) {
				t.Errorf("%s: %v after %d bytes, want %s", c.name, err, len(got), c.rule)
			}
		}
	}
}

func FuzzMessages(f *testing.F) {
	v, _ := New(Key{1}, []Secret{one(ghKey, Binding{Host: "api.example.org", As: Bearer})})
	g := &Grant{vault: v}
	f.Add(frame(0x81, "hello"), 3)
	f.Add(append(frame(0x01, "a"), frame(0x80, "b")...), 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		whole, err := io.ReadAll(g.Messages(bytes.NewReader(b)))
		if !bytes.HasPrefix(b, whole) {
			t.Error("it yields what was not sent")
		}
		slow, slowErr := io.ReadAll(g.Messages(iotest.OneByteReader(bytes.NewReader(b))))
		if (err == nil) != (slowErr == nil) || !bytes.HasPrefix(b, slow) { // what a stream that ends early yields of its last frame differs
			t.Errorf("%v, byte by byte %v", err, slowErr)
		}
	})
}

// What a server repeats in messages is covered, however it is cut, and frames
// are as long as they were.
func TestReplies(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	reply := func(first byte, payload string) string { return string([]byte{first, byte(len(payload))}) + payload }
	stars := strings.Repeat("*", len(ghKey))
	for _, c := range []struct{ name, in, want string }{
		{"nothing", reply(0x81, "hello") + reply(0x88, "\x03\xe8"), reply(0x81, "hello") + reply(0x88, "\x03\xe8")},
		{"whole", reply(0x81, "you are "+ghKey+"!") + reply(0x81, "next"), reply(0x81, "you are "+stars+"!") + reply(0x81, "next")},
		{"twice", reply(0x82, ghKey+ghKey), reply(0x82, stars+stars)},
		{"in a ping", reply(0x89, ghKey), reply(0x89, stars)},
		{"fragments", reply(0x01, "a"+ghKey[:9]) + reply(0x89, "ping") + reply(0x00, "") + reply(0x80, ghKey[9:]+"b"),
			reply(0x01, "a"+stars[:9]) + reply(0x89, "ping") + reply(0x00, "") + reply(0x80, stars[9:]+"b")},
		{"the beginning alone", reply(0x01, ghKey[:9]) + reply(0x80, ghKey[:9]) + reply(0x81, ghKey[9:]), reply(0x01, ghKey[:9]) + reply(0x80, ghKey[:9]) + reply(0x81, ghKey[9:])},
	} {
		for _, size := range []int{1, 3, 1 << 10} {
			var out bytes.Buffer
			w := (&Grant{vault: v, bound: true}).Replies(&out)
			for rest := c.in; rest != ""; {
				n := min(size, len(rest))
				if _, err := io.WriteString(w, rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if out.String() != c.want {
				t.Errorf("%s in pieces of %d: %q, want %q", c.name, size, out.String(), c.want)
			}
		}
	}
	var out bytes.Buffer
	if _, err := (&Grant{vault: v, bound: true}).Replies(&out).Write(frame(0x81, "masked")); err == nil {
		t.Error("a client's frame was passed on")
	}
}

// However a server's frames are cut, the same goes out: what came, with asterisks.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("\x81\x2bx"+ghKey+"yz"), uint8(3))
	f.Add([]byte("\x01\x0aa"+ghKey[:9]+"\x89\x01p\x80\x20"+ghKey[9:]+"b"), uint8(1))
	f.Add([]byte("\x81\x7e\x00\x28"+ghKey), uint8(7))
	v, faults := New(Key{1}, []Secret{one(ghKey, Binding{Host: "api.example.org", As: Bearer})})
	if len(faults) > 0 {
		f.Fatal(faults)
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		pass := func(step int) (string, error) {
			var out bytes.Buffer
			w := (&Grant{vault: v, bound: true}).Replies(&out)
			for rest := in; len(rest) > 0; {
				n := min(step, len(rest))
				if _, err := w.Write(rest[:n]); err != nil {
					return out.String(), err
				}
				rest = rest[n:]
			}
			return out.String(), nil
		}
		whole, err1 := pass(len(in) + 1)
		pieces, err2 := pass(int(size) + 1)
		if !strings.HasPrefix(whole, pieces) && !strings.HasPrefix(pieces, whole) || (err1 == nil) != (err2 == nil) {
			t.Fatalf("%q at once, %q in pieces of %d; %v, %v", whole, pieces, int(size)+1, err1, err2)
		}
		if whole = max(whole, pieces); len(whole) > len(in) { // one waits for more, of a frame that is not complete
			t.Fatalf("%d bytes out of %d", len(whole), len(in))
		}
		for i := range len(whole) {
			if whole[i] != in[i] && whole[i] != '*' {
				t.Fatalf("%q became %q", in, whole)
			}
		}
	})
}

package local

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSealedCopy(t *testing.T) {
	const program = "/bin/true"
	f, err := sealedCopy(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || seals != copySeals {
		t.Errorf("seals %#x, %v", seals, err)
	}
	want, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	path := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if w, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		if _, err := w.Write([]byte{0}); err == nil {
			t.Error("it can be changed")
		}
		w.Close()
	}
	if out, err := exec.Command(path).CombinedOutput(); err != nil {
		t.Errorf("run it: %v: %s", err, out)
	}
}

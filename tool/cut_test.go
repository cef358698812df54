package tool_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/tool"
)

// An error that is cut is masked first: no piece of a value is left at its end.
func TestCutErrorsShowNoPiece(t *testing.T) {
	b := newBench(t, nil)
	for n := range 56 {
		// hunter2hunter2 is a value that is masked; names of files are at most 255 bytes.
		long := strings.Repeat("d", 200) + "/" + strings.Repeat("e", 190) + "/" + strings.Repeat("f", 4*n) + "hunter2hunter2"
		for _, args := range []string{fmt.Sprintf(`{"path":%q}`, long), fmt.Sprintf(`{"path":"x","sandbox_id":%q}`, strings.Repeat("s", 20+n)+"hunter2hunter2")} {
			r := b.raw(tool.ReadFile, args)
			if r.Err == nil || strings.Contains(r.Err.Message, "hunt") {
				t.Fatalf("%s: %+v", args, r.Err)
			}
		}
	}
}

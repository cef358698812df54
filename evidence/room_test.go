package evidence_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/evidence"
)

// In little room a long line that is only somewhat remarkable does not take the
// place of short ones.
func TestLongLineInLittleRoom(t *testing.T) {
	asked := "    the user asked for " + strings.Repeat("first ", 20) + "1\n"
	needs := "    the first of them needs " + strings.Repeat("second ", 17) + "2\n"
	var b strings.Builder
	for i := range 2000 {
		switch {
		case i >= 1000 && i < 1010:
			fmt.Fprintf(&b, "  got: %d of %s\n", i, strings.Repeat("x", 310))
		case i == 1500:
			b.WriteString("The conflict is caused by:\n" + asked + needs)
		default:
			fmt.Fprintf(&b, "fetched part %d of the archive\n", i)
		}
	}
	p := evidence.Show(evidence.Text([]byte(b.String())), evidence.Stream{}, evidence.Options{Bytes: 2 << 10})
	for _, want := range []string{"The conflict is caused by:\n", asked, needs} {
		if !strings.Contains(p.Stdout.Text, want) {
			t.Errorf("%q is not shown:\n%s", want, p.Stdout.Text)
		}
	}
}

package layout_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rein-sh/rein/budget"
)

// docs/limits.md shows the numbers of the presets.
func TestLimitsDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	var presets [][]budget.Setting
	for _, l := range []budget.Limits{budget.Quick(), budget.Standard(), budget.Long()} {
		presets = append(presets, l.List())
	}
	for i, s := range presets[0] {
		row := fmt.Sprintf("| `%s` | %s | `%s` | %s | %s | %s |", s.Limit, s.Limit.Layer(), s.Limit.Flag(),
			s.Value, presets[1][i].Value, presets[2][i].Value)
		if !strings.Contains(string(doc), row+"\n") {
			t.Errorf("docs/limits.md lacks this row:\n%s", row)
		}
	}
}

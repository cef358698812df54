package layout

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Ranks maps a package, relative to the module, to its rank. A package imports
// lower ranks only.
type Ranks map[string]int

// The exceptions, each with its reason.
var (
	// peers may import one package of their own rank.
	peers = map[string]string{
		"audit": "secret", // the record masks what it writes
	}
	// only names the packages of ours that another may import.
	only = map[string][]string{
		"execd/daemon": {"execd", "evidence/clue", "internal/seccomp", "internal/sockdiag"}, // it runs beside untrusted code and stays small
	}
)

var row = regexp.MustCompile("^\\| *([0-9]+) *\\| *(`[^|]*`) *\\|")

// ParseRanks reads the table of docs/architecture.md: rows of a rank and the
// packages that have it, each in backquotes.
func ParseRanks(doc []byte) (Ranks, error) {
	ranks := Ranks{}
	for line := range strings.Lines(string(doc)) {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		rank, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		for cell := range strings.SplitSeq(m[2], ",") {
			name := strings.Trim(strings.TrimSpace(cell), "`")
			if _, twice := ranks[name]; twice {
				return nil, fmt.Errorf("docs/architecture.md: package %s has two ranks", name)
			}
			ranks[name] = rank
		}
	}
	if len(ranks) == 0 {
		return nil, fmt.Errorf("docs/architecture.md: there is no table of ranks (rows like | 0 | `name`, `name` | …)")
	}
	return ranks, nil
}

// of returns the rank of a package; the parts of a command have the rank of
// the command.
func (r Ranks) of(pkg string) (int, bool) {
	rank, ok := r[command(pkg)]
	return rank, ok
}

// command returns cmd/NAME for packages beneath it, and others unchanged.
func command(pkg string) string {
	if parts := strings.SplitN(pkg, "/", 3); len(parts) == 3 && parts[0] == "cmd" {
		return parts[0] + "/" + parts[1]
	}
	return pkg
}

// imports checks that packages import lower ranks only. Tests may import
// anything: they are where the parts meet.
func (t *Tree) imports() []string {
	var faults []string
	for _, f := range t.sources() {
		pkg := f.Package()
		rank, known := t.Ranks.of(pkg)
		if !known {
			fault := fmt.Sprintf("package %s has no rank: give it one in the table of docs/architecture.md, above everything it imports", pkg)
			if !slices.Contains(faults, fault) {
				faults = append(faults, fault)
			}
			continue
		}
		if f.Test() {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			target, ours := strings.CutPrefix(name, t.Module+"/")
			if !ours || target == peers[pkg] || command(target) == command(pkg) {
				continue
			}
			if allowed, limited := only[pkg]; limited && !slices.Contains(allowed, target) {
				faults = append(faults, fmt.Sprintf("%s: %s imports %s, but of ours it may only import %s", f.line(spec.Pos()), pkg, target, strings.Join(allowed, ", ")))
			}
			if above, ok := t.Ranks.of(target); ok && above >= rank {
				faults = append(faults, fmt.Sprintf("%s: %s (rank %d) imports %s (rank %d); it may import lower ranks only: declare the interface it needs in %s and let the caller pass the implementation",
					f.line(spec.Pos()), pkg, rank, target, above, pkg))
			}
		}
	}
	return faults
}

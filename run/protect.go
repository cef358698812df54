package run

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/run/patch"
	"github.com/rein-sh/rein/run/workspace"
)

// guards are the patterns of Options.Protect.
type guards struct{ patterns workspace.Patterns }

// protected compiles Options.Protect. People also write "./a" for the a at the
// top.
func protected(patterns ...string) guards {
	var b strings.Builder
	for _, p := range patterns {
		if rest, ok := strings.CutPrefix(p, "./"); ok {
			p = "/" + rest
		}
		b.WriteString(p + "\n")
	}
	return guards{workspace.Compile(b.String())}
}

// covers reports whether name is protected. Something that is no regular file
// may stand for a directory, as a symbolic link does, and is covered by a
// pattern for directories, too.
func (g guards) covers(name string, regular bool) bool {
	return g.patterns.Covers(name) || !regular && g.patterns.Covers(name+"/")
}

// checkProtected warns of patterns that no file matches, which is how a slip of
// the hand looks.
func (r *runner) checkProtected() {
	for _, p := range r.o.Protect {
		if strings.HasPrefix(p, "!") { // takes files out of what others protect
			continue
		}
		g := protected(p)
		if !slices.ContainsFunc(r.inputs.Entries, func(e *workspace.Entry) bool { return e.Type != workspace.Dir && g.covers(e.Path, true) }) {
			r.warn("no file of the workspace matches %s: only a new one would be a change to what is protected", p)
		}
	}
}

// copiesDir holds copies of inputs while a run goes on, and maxCopies bounds them.
const (
	copiesDir = "inputs"
	maxCopies = 256 << 20
)

// keepCopies sees to it that protected files can be put back, and a new sandbox
// for the checks made, as the inputs were when the run began: people go on
// working in their directories.
func (r *runner) keepCopies() error {
	var want, rest []*workspace.Entry
	g := protected(r.o.Protect...)
	for _, e := range r.inputs.Entries {
		if e.Type == workspace.File && g.covers(e.Path, true) {
			want = append(want, e)
		} else if r.o.Fresh {
			rest = append(rest, e)
		}
	}
	if want = append(want, rest...); len(want) == 0 {
		return nil
	}
	without, err := r.inputs.Keep(filepath.Join(r.dir, copiesDir), want, maxCopies)
	if len(without) > 0 {
		var names []string
		for _, e := range without {
			names = append(names, e.Path)
		}
		r.warn("no copy is kept of %s: together with what is, they are larger than %d MiB; to be put back they must stay as they are on this host", list(names), maxCopies>>20)
	}
	return err
}

// unknown is the hash of what could not be looked at.
const unknown = "unknown"

// guarded reports whether a file is protected.
func (p *patcher) guarded(s pair) bool {
	regular := (s.before == nil || s.before.Type == workspace.File) && (s.after == nil || s.after.Type == "file")
	return p.protect.covers(s.path, regular)
}

// guard notes what became of a protected file. after and sum are what is there
// now; sum is empty when nothing is.
func (p *patcher) guard(s pair, after patch.Side, sum string) {
	if !p.guarded(s) {
		return
	}
	g := Protected{Path: s.path, After: sum}
	if e := s.before; e != nil {
		g.Before = e.SHA256
		if e.Type == workspace.Link {
			g.Before = "link " + e.Target
		}
	}
	switch {
	case s.before == nil:
		g.Kind = string(patch.Added)
	case s.after == nil:
		g.Kind = string(patch.Deleted)
	case g.Before != sum:
		g.Kind = string(patch.Modified)
	case s.before.Type == workspace.File && mode(s.before) != after.Mode:
		g.Kind = string(patch.Moded)
	default:
		g.Unchanged = true
	}
	p.protected = append(p.protected, g)
	if !g.Unchanged {
		p.breached = append(p.breached, s)
	}
}

// guardForeign looks at something new that is no part of the work. Where
// credentials are kept it counts as any new file does. What ignore files leave
// out, like products of a build, does not count, but is told.
func (p *patcher) guardForeign(rel string, info execd.FileInfo, secret bool) {
	switch {
	case !p.protect.covers(rel, info.Type == "file"):
	case secret:
		sum := info.SHA256
		if sum == "" {
			sum = unknown
		}
		p.guard(pair{path: rel, after: &info}, patch.Side{}, sum)
	default:
		p.unwatched = append(p.unwatched, rel)
	}
}

// breach says in a few words what happened to a protected file.
func (g Protected) breach() string {
	switch patch.Kind(g.Kind) {
	case patch.Added:
		return "added " + g.Path + ", where files are protected"
	case patch.Deleted:
		return "deleted " + g.Path + ", which is protected"
	}
	return "changed " + g.Path + ", which is protected"
}

// breaches are those among protected files, the first maxTold.
func breaches(protected []Protected) (out []string) {
	for _, g := range protected {
		if !g.Unchanged && len(out) < maxTold {
			out = append(out, g.breach())
		}
	}
	return out
}

// fate is a heading for what happened to a protected file.
func (g Protected) fate() string {
	switch {
	case g.Unchanged:
		return "unchanged"
	case g.Kind == "": // a report of an earlier version
		return "CHANGED"
	case g.Kind == string(patch.Moded):
		return "MODE CHANGED"
	}
	return strings.ToUpper(g.Kind)
}

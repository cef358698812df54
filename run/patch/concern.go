package patch

import (
	"path"
	"slices"
	"strings"
)

// Concern is a file of a patch that may run by itself later, or that is easily
// overlooked: a person decides about it.
type Concern struct {
	Path string
	Kind string // "hook", "ci", "executable", "link", "dotfile", or the caller's own
	Why  string
}

var (
	hookDirs  = []string{".husky", ".githooks"}
	hookFiles = []string{".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml", "lefthook.yaml",
		".lefthook.yml", ".gitattributes", ".gitmodules", ".envrc"}
	ciDirs  = []string{".github", ".gitlab", ".circleci", ".buildkite", ".ci", ".woodpecker", ".forgejo", ".gitea", ".teamcity"}
	ciFiles = []string{".gitlab-ci.yml", ".travis.yml", ".drone.yml", ".cirrus.yml", ".appveyor.yml", "appveyor.yml",
		"jenkinsfile", "azure-pipelines.yml", "bitbucket-pipelines.yml", "cloudbuild.yaml", "codefresh.yml"}
)

// Concerns says what about a change needs a decision; nil when nothing does.
// Deleting a file concerns nobody.
func (d *Diff) Concerns() []Concern {
	if d.Removed {
		return nil
	}
	var out []Concern
	add := func(kind, why string) { out = append(out, Concern{Path: d.Path, Kind: kind, Why: why}) }
	parts := strings.Split(strings.ToLower(d.Path), "/")
	base, dirs := parts[len(parts)-1], parts[:len(parts)-1]
	in := func(names []string) bool {
		return slices.ContainsFunc(dirs, func(p string) bool { return slices.Contains(names, p) })
	}
	switch {
	case in(hookDirs), slices.Contains(hookFiles, base):
		add("hook", "version control or a shell may run it by itself")
	case in(ciDirs), slices.Contains(ciFiles, base), strings.HasPrefix(base, "jenkinsfile"):
		add("ci", "continuous integration runs it, often with credentials")
	case slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(p, ".") }):
		add("dotfile", "tools read it, listings hide it")
	}
	if d.NewMode == Executable && (d.Created || d.OldMode != Executable) {
		add("executable", "it becomes executable")
	}
	if d.NewMode == Link {
		add("link", "it is a symbolic link to "+path.Clean(d.target()))
	}
	return out
}

// target is where a new link points, as far as the patch says it.
func (d *Diff) target() string {
	if d.Binary {
		return string(d.Literal)
	}
	var b strings.Builder
	for _, h := range d.Hunks {
		for _, l := range h.Lines {
			if l.Op != '-' {
				b.Write(l.Text)
			}
		}
	}
	return b.String()
}

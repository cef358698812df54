package policy

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed bundles.csv
var bundlesCSV string

// BundleHost is one host of a bundle.
type BundleHost struct {
	Bundle string
	Host   string
	Ports  []int
	Form   string // empty, git or repository: what bundles.csv says of it
	// Receives says how somebody else than the host's owner can be sent data
	// through it; empty when no such way is known. Reading is the same of one
	// from which a bundle lets it be read.
	Receives, Reading string
	Source            string // where it is written that the host is needed
}

// bundleHosts reads the embedded table once. A fault in it is one of the
// program, and found by its tests.
var bundleHosts = sync.OnceValue(func() []BundleHost {
	var out []BundleHost
	for line := range strings.Lines(bundlesCSV) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		field := strings.Split(line, ",")
		if len(field) != 7 {
			panic("bundles.csv: " + line)
		}
		h := BundleHost{Bundle: field[0], Host: field[1], Form: field[3], Receives: cmp.Or(field[4], field[5]), Reading: field[5], Source: field[6]}
		for port := range strings.FieldsSeq(field[2]) {
			n, err := strconv.Atoi(port)
			if err != nil {
				panic("bundles.csv: " + line)
			}
			h.Ports = append(h.Ports, n)
		}
		out = append(out, h)
	}
	return out
})

// Bundles returns the names of the bundles. github:OWNER/REPO stands for any
// repository.
func Bundles() []string {
	var names []string
	for _, h := range bundleHosts() {
		if h.Bundle != "" && !slices.Contains(names, h.Bundle) {
			names = append(names, h.Bundle)
		}
	}
	return names
}

const (
	repositoryBundle = "github:OWNER/REPO"
	repositoryPrefix = "github:"
)

// Bundle returns what a bundle allows; nil when there is none of that name.
func Bundle(name string) []BundleHost {
	key := name
	if rest, ok := strings.CutPrefix(name, repositoryPrefix); ok {
		if owner, repo, ok := strings.Cut(rest, "/"); !ok || !githubName(owner) || !githubName(repo) {
			return nil
		}
		key = repositoryBundle
	}
	var out []BundleHost
	for _, h := range bundleHosts() {
		if h.Bundle == key && key != "" {
			h.Ports = slices.Clone(h.Ports)
			out = append(out, h)
		}
	}
	return out
}

// bundleOf is the first bundle that has a host, in its canonical form; empty when
// none has.
func bundleOf(host string) string {
	for _, h := range bundleHosts() {
		if h.Host == host {
			return h.Bundle
		}
	}
	return ""
}

// githubName reports whether s can be an owner or a repository there.
func githubName(s string) bool {
	return s != "" && len(s) <= 100 && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	})
}

func (c *compiler) bundle(path, name string) {
	hosts := Bundle(name)
	if hosts == nil {
		c.fault(path, "known: "+strings.Join(Bundles(), ", "), "%s is no bundle", quote(name))
		return
	}
	var receives, whole []string
	for _, h := range hosts {
		r := &rule{index: len(c.policy.rules), id: "bundles." + name, text: h.Host, action: Allow, class: Public,
			methods: []string{"GET", "HEAD"}, reads: readingOf(name, h.Form)}
		for _, port := range h.Ports {
			proto := HTTPS
			if port == 80 {
				proto = HTTP
			}
			r.ports = append(r.ports, portOf{uint16(port), proto})
		}
		c.add(r, h.Host)
		if h.Reading != "" {
			receives = append(receives, h.Host+": "+h.Reading)
		}
		if strings.HasPrefix(name, repositoryPrefix) && r.reads.repo == "" {
			whole = append(whole, h.Host)
		}
	}
	if len(receives) > 0 {
		c.note(path, "%s can also send data: %s", name, strings.Join(receives, "; "))
	}
	if len(whole) > 0 {
		c.note(path, "%s reaches files of every repository at %s, whose paths do not name one: GitHub signs them", name, strings.Join(whole, ", "))
	}
}

func (c *compiler) note(path, format string, args ...any) {
	c.policy.notes = append(c.policy.notes, Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

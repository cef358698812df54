package layer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Manifest says what a layer is: it is kept beside the tree.
type Manifest struct {
	Package string   `json:"package"`
	Version string   `json:"version"`
	Newest  bool     `json:"newest,omitempty"` // it was asked for as the newest
	Scripts []string `json:"scripts,omitempty"`
	// Base is Target.Base; ImageDigest and Node are what the sandbox of the installation
	// had, NPM what installed it.
	Base        string `json:"base"`
	ImageDigest string `json:"image_digest,omitempty"`
	Node        string `json:"node"`
	NPM         string `json:"npm"`
	Registry    string `json:"registry"`
	SandboxID   string `json:"sandbox_id"`

	Digest    string     `json:"digest"` // of paths, modes, targets of links and contents
	Bytes     int64      `json:"bytes"`
	Files     int        `json:"files"` // with directories and links
	Dropped   Dropped    `json:"dropped"`
	Packages  []Resolved `json:"packages"`
	Installed time.Time  `json:"installed"`
}

// Resolved is one package of a tree, as npm's own lock says.
type Resolved struct {
	Path      string `json:"path"` // such as node_modules/yargs
	Version   string `json:"version"`
	From      string `json:"resolved,omitempty"`
	Integrity string `json:"integrity,omitempty"`
}

// record is a manifest as it is written.
type record struct {
	Format int `json:"format"`
	Manifest
	Entries []Entry `json:"entries"`
}

const (
	format       = 1
	manifestFile = "manifest.json"
	treeDir      = "tree"
	maxManifest  = 64 << 20 // bytes
	maxLock      = 16 << 20 // bytes of npm's lock
)

// readRecord is nil without an error when there is no layer.
func readRecord(dir string) (*record, error) {
	data, err := readBounded(filepath.Join(dir, manifestFile), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestFile, err)
	}
	if r.Format != format {
		return nil, fmt.Errorf("%s has the format %d, not %d", manifestFile, r.Format, format)
	}
	return r, nil
}

func writeRecord(dir string, r *record) error {
	r.Format = format
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), append(b, '\n'), 0o400)
}

func readBounded(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", filepath.Base(file), most)
	}
	return b, err
}

// check compares a tree with its manifest.
func (r *record) check(ctx context.Context, dir string, contents bool) error {
	now, err := scan(ctx, filepath.Join(dir, treeDir), contents)
	if err != nil {
		return err
	}
	if what := difference(r.Entries, now, contents); what != "" {
		return errors.New(what)
	}
	if got := digestOf(r.Entries); got != r.Digest {
		return fmt.Errorf("its digest is %s, not %s", got, r.Digest)
	}
	return nil
}

// ParseLock reads npm's own lock of a tree, node_modules/.package-lock.json, which is
// the work of strangers: the packages sorted by path.
func ParseLock(data []byte) ([]Resolved, error) {
	var lock struct {
		Version  int `json:"lockfileVersion"`
		Packages map[string]struct {
			Version   string `json:"version"`
			Resolved  string `json:"resolved"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, fmt.Errorf("npm's lock: %w", err)
	}
	if lock.Version < 2 {
		return nil, fmt.Errorf("npm's lock has the version %d; 2 and above are read (npm 7)", lock.Version)
	}
	var out []Resolved
	for path, p := range lock.Packages {
		if path == "" {
			continue
		}
		if !IsVersion(withoutBuild(p.Version)) || len(path) > 1024 || strings.ContainsFunc(path+p.Resolved, func(r rune) bool { return r < 0x20 }) {
			return nil, fmt.Errorf("npm's lock says %.100q of %.100q", p.Version, path)
		}
		if p.Integrity != "" && !strings.HasPrefix(p.Integrity, "sha512-") {
			return nil, fmt.Errorf("npm's lock has no sha512 of %.100q", path)
		}
		out = append(out, Resolved{path, p.Version, p.Resolved, p.Integrity})
	}
	slices.SortFunc(out, func(a, b Resolved) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// withoutBuild leaves out what a version says of its making (semver.org, 10).
func withoutBuild(version string) string {
	v, _, _ := strings.Cut(version, "+")
	return v
}

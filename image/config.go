package image

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// configFile is what is used of a configuration, and what none has.
type configFile struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant"`
	Config       struct {
		User       string
		Env        []string
		Entrypoint []string
		Cmd        []string
		Labels     map[string]string
		WorkingDir string
		StopSignal string
	} `json:"config"`
	RootFS struct {
		Type    string          `json:"type"`
		DiffIDs json.RawMessage `json:"diff_ids"`
	} `json:"rootfs"`

	Schema    json.RawMessage `json:"schemaVersion"` // of a manifest or an index
	Layers    json.RawMessage `json:"layers"`
	Manifests json.RawMessage `json:"manifests"`
}

// configure reads an image's configuration and returns the digests of its
// layers' archives. One that could be read as a manifest is refused: of a
// docker-archive it is the configuration that has the image's digest.
func (s *Store) configure(out *plan, raw []byte) ([]string, error) {
	var c configFile
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, corrupt("the configuration is no JSON of an image: %v", err)
	}
	if c.Schema != nil || c.Layers != nil || c.Manifests != nil {
		return nil, corrupt("the configuration is a manifest, too")
	}
	offered := v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
	if (c.OS != "" || c.Architecture != "") && fits(s.platform, offered) == 0 {
		return nil, &fault{kind: KindNotFound, hint: otherMachine, err: fmt.Errorf("the image is for %.100s, not for %s", platformText(offered), platformText(s.platform))}
	}
	if c.RootFS.Type != "" && c.RootFS.Type != "layers" {
		return nil, unsupported("", "a root file system of the kind %.100q", c.RootFS.Type)
	}
	ids, err := list[string](c.RootFS.DiffIDs, s.o.Limits.Layers, "layers")
	if err != nil {
		return nil, fmt.Errorf("the configuration: %w", err)
	}
	for _, id := range ids {
		if !digestPart.MatchString(id) {
			return nil, unsupported("", "the digest %.100q of a layer is no sha256", id)
		}
	}
	out.config = Config{User: c.Config.User, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, Labels: c.Config.Labels,
		WorkingDir: path.Clean("/" + c.Config.WorkingDir), StopSignal: c.Config.StopSignal, OS: c.OS, Architecture: c.Architecture}
	nameless := func(e string) bool { name, _, ok := strings.Cut(e, "="); return !ok || name == "" }
	if i := slices.IndexFunc(c.Config.Env, nameless); i >= 0 {
		out.notes = append(out.notes, fmt.Sprintf("the image's environment has %.100q, which is no NAME=VALUE; what is none was left out", c.Config.Env[i]))
	}
	out.config.Env = slices.DeleteFunc(c.Config.Env, nameless)
	return ids, out.config.check()
}

// maxStart bounds entrypoint and arguments together, in bytes. They are part of
// every record of a sandbox; Linux takes 128 KiB for one argument.
const maxStart = 64 << 10

// check refuses what no program can be started with.
func (c Config) check() error {
	start := 0
	for _, a := range slices.Concat(c.Entrypoint, c.Cmd) {
		start += len(a) + 1
	}
	if start > maxStart {
		return tooLarge("an entrypoint with arguments of %d bytes, more than %d", start, maxStart)
	}
	texts := [][]string{{c.User, c.WorkingDir, c.StopSignal}, c.Env, c.Entrypoint, c.Cmd}
	for _, list := range texts {
		for _, t := range list {
			if strings.ContainsRune(t, 0) {
				return corrupt("a zero byte in the configuration, in %.100q", t)
			}
		}
	}
	return nil
}

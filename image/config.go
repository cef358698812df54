package image

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// configure reads an image's configuration and returns the digests of its
// layers' archives.
func (s *Store) configure(out *plan, raw []byte) ([]string, error) {
	var c v1.ConfigFile
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, corrupt("the configuration is no JSON of an image: %v", err)
	}
	offered := v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
	if (c.OS != "" || c.Architecture != "") && fits(s.platform, offered) == 0 {
		return nil, &fault{kind: KindNotFound, err: fmt.Errorf("the image is for %.100s, not for %s", platformText(offered), platformText(s.platform))}
	}
	if c.RootFS.Type != "" && c.RootFS.Type != "layers" {
		return nil, unsupported("", "a root file system of the kind %.100q", c.RootFS.Type)
	}
	out.config = Config{User: c.Config.User, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, Labels: c.Config.Labels,
		WorkingDir: path.Clean("/" + c.Config.WorkingDir), StopSignal: c.Config.StopSignal, OS: c.OS, Architecture: c.Architecture}
	for _, e := range c.Config.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			out.notes = append(out.notes, fmt.Sprintf("the image's environment has %.100q, which is no NAME=VALUE and was left out", e))
			continue
		}
		out.config.Env = append(out.config.Env, e)
	}
	if err := out.config.check(); err != nil {
		return nil, err
	}
	ids := make([]string, len(c.RootFS.DiffIDs))
	for i, h := range c.RootFS.DiffIDs {
		if ids[i] = h.String(); !digestPart.MatchString(ids[i]) {
			return nil, unsupported("", "the digest %.100q of a layer is no sha256", ids[i])
		}
	}
	return ids, nil
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

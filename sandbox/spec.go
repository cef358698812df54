package sandbox

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Check reports the first thing in a Spec that no provider could honour, as
// KindInvalid. Create calls it; a provider may rely on it.
func (s Spec) Check() error {
	bad := func(subject, format string, args ...any) error {
		return &Error{Kind: KindInvalid, Op: "create", Subject: subject, Err: fmt.Errorf(format, args...)}
	}
	if s.TTL <= 0 {
		return &Error{Kind: KindInvalid, Op: "create", Subject: "ttl",
			Err: fmt.Errorf("%v is no time to live", s.TTL), Hint: "give a positive duration, such as --ttl 15m"}
	}
	if s.Cwd != "" && (!path.IsAbs(s.Cwd) || path.Clean(s.Cwd) != s.Cwd) {
		return bad("cwd", "%q is not a clean absolute path", s.Cwd)
	}
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return bad("env", "%q cannot be the name of a variable, or its value holds a NUL byte", name)
		}
	}
	for key, value := range s.Labels {
		if err := checkLabel(key, value); err != nil {
			return bad("labels", "%w", err)
		}
	}
	r := s.Resources
	if r.CPU < 0 || r.Memory < 0 || r.PIDs < 0 || r.Disk < 0 {
		return bad("resources", "a limit is negative")
	}
	for _, m := range s.Mounts {
		for _, p := range []string{m.Source, m.Target} {
			if !path.IsAbs(p) || path.Clean(p) != p {
				return bad("mounts", "%q is not a clean absolute path", p)
			}
		}
	}
	return CheckCapabilities(s.Require)
}

// Kubernetes' rules for labels: an optional DNS prefix, a name and a value of
// at most 63 characters each.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
const (
	labelPart = `[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?`
	dnsName   = `[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*`
)

func checkLabel(key, value string) error {
	prefix, _, _ := strings.Cut(key, "/")
	if ok, _ := regexp.MatchString(`^(`+dnsName+`/)?`+labelPart+`$`, key); !ok || len(prefix) > 253 {
		return fmt.Errorf("%q cannot be the key of a label", key)
	}
	if ok, _ := regexp.MatchString(`^(`+labelPart+`)?$`, value); !ok {
		return fmt.Errorf("%q cannot be the value of label %q", value, key)
	}
	return nil
}

package sandbox

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
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
	if err := s.Resources.Check(); err != nil {
		return err
	}
	for _, m := range s.Mounts {
		for _, p := range []string{m.Source, m.Target} {
			if !path.IsAbs(p) || path.Clean(p) != p {
				return bad("mounts", "%q is not a clean absolute path", p)
			}
		}
	}
	if _, err := policy.Compile(s.Network); err != nil {
		return InvalidNetwork("create", err)
	}
	if err := s.checkSecrets(); err != nil {
		return err
	}
	if err := s.checkModels(); err != nil {
		return err
	}
	return CheckCapabilities(s.Require)
}

// checkSecrets reports the first fault of the secrets.
func (s Spec) checkSecrets() error {
	bad := func(subject, hint, format string, args ...any) error {
		return &Error{Kind: KindInvalid, Op: "create", Subject: subject, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	seen := map[string]bool{}
	for _, secret := range s.Secrets {
		name := "secrets." + secret.Name
		switch _, taken := s.Env[secret.Variable]; {
		case secret.Name == "" || seen[secret.Name]:
			return bad("secrets", "", "a secret has no name, or that of another")
		case secret.Variable != "" && (taken || seen["$"+secret.Variable]):
			return bad(name+".variable", "name another variable", "%s is set by something else", secret.Variable)
		case strings.ContainsAny(secret.Variable, "=\x00"):
			return bad(name+".variable", "such as API_KEY", "%q is no name of a variable", secret.Variable)
		}
		seen[secret.Name], seen["$"+secret.Variable] = true, true
	}
	if faults := vault.Check(s.Secrets); len(faults) > 0 {
		return bad("secrets."+faults[0].Path, faults[0].Hint, "%s", faults[0].Message)
	}
	return nil
}

// The least a sandbox can start and run a command with: execd is a program of
// 7 MB that is copied in, starts in 24 MiB under runc, and has some twenty
// threads that count as processes there. With less CPU it takes longer to start
// than providers wait.
const (
	MinCPU    = 0.05     // cores
	MinMemory = 32 << 20 // bytes
	MinPIDs   = 32
	MinDisk   = 16 << 20 // bytes
)

// Check reports the first limit, in the order of the fields, that no sandbox
// could start with, as KindInvalid with Subject "resources.memory" and the like.
// Zeroes are fine: they take the provider's defaults.
func (r Resources) Check() error {
	for _, l := range []struct {
		name       string
		ok         bool
		got, least string
	}{
		{"cpu", r.CPU == 0 || r.CPU >= MinCPU && !math.IsInf(r.CPU, 1), fmt.Sprintf("%g cores", r.CPU), fmt.Sprintf("%g cores", MinCPU)},
		{"memory", r.Memory == 0 || r.Memory >= MinMemory, bytesOf(r.Memory), bytesOf(MinMemory)},
		{"pids", r.PIDs == 0 || r.PIDs >= MinPIDs, fmt.Sprintf("%d processes", r.PIDs), fmt.Sprintf("%d processes", MinPIDs)},
		{"disk", r.Disk == 0 || r.Disk >= MinDisk, bytesOf(r.Disk), bytesOf(MinDisk)},
	} {
		if !l.ok {
			return &Error{Kind: KindInvalid, Op: "create", Subject: "resources." + l.name,
				Err: fmt.Errorf("no sandbox can start with %s", l.got), Hint: "give at least " + l.least + ", or leave it out for the default"}
		}
	}
	return nil
}

// bytesOf writes a size with the largest binary unit that is exact.
func bytesOf(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	i := 0
	for ; i < len(units)-1 && n != 0 && n%1024 == 0; i++ {
		n /= 1024
	}
	return fmt.Sprintf("%d %s", n, units[i])
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

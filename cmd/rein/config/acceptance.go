package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/rein-sh/rein/run"
)

// Acceptance is what decides whether work is accepted.
type Acceptance struct {
	Checks    []Check  `json:"checks,omitempty" jsonschema:"what must hold when the work is done"`
	Protected []string `json:"protected,omitempty" jsonschema:"patterns, as in a .gitignore, of files the agent must not change; they are put back before the checks"`
	Fresh     bool     `json:"fresh,omitempty" jsonschema:"run the checks in a sandbox of their own, made from the inputs and the patch"`
	Retry     int      `json:"retry,omitempty" jsonschema:"how often the agent is told which checks failed, and goes on, at most 10"`
}

// Check is one check: exactly one of Run, Shell and File.
type Check struct {
	Name    string            `json:"name,omitempty" jsonschema:"what reports call it"`
	Run     []string          `json:"run,omitempty" jsonschema:"program and arguments, started without a shell; an absolute path, or a name looked for in the sandbox's PATH"`
	Shell   string            `json:"shell,omitempty" jsonschema:"a command for the sandbox's shell"`
	Cwd     string            `json:"cwd,omitempty" jsonschema:"directory in the workspace"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"variables of the command; HOME and TMPDIR are empty directories unless set"`
	Timeout Duration          `json:"timeout,omitempty" jsonschema:"5m unless set"`
	File    *FileCheck        `json:"file,omitempty" jsonschema:"what a file must be like"`
}

// FileCheck is what a file must be like.
type FileCheck struct {
	Path     string   `json:"path" jsonschema:"in the workspace, or absolute inside the sandbox"`
	Absent   bool     `json:"absent,omitempty" jsonschema:"it must not exist"`
	MinBytes Size     `json:"min_bytes,omitempty" jsonschema:"its least size"`
	MaxBytes Size     `json:"max_bytes,omitempty" jsonschema:"its greatest size"`
	Contains []string `json:"contains,omitempty" jsonschema:"texts that must be in it"`
	Matches  []string `json:"matches,omitempty" jsonschema:"regular expressions (RE2) that must match"`
	SHA256   string   `json:"sha256,omitempty" jsonschema:"hash of its content"`
	Schema   string   `json:"schema,omitempty" jsonschema:"JSON Schema that its JSON must keep to, written as JSON"`
}

// ParseAcceptance reads and judges a file of checks, as strictly as a
// configuration.
func ParseAcceptance(name string, data []byte) (Acceptance, error) {
	var a Acceptance
	f := &File{Name: name, Set: map[string]Position{}}
	err := decodeInto(f, data, reflect.ValueOf(&a).Elem())
	if partial(f, err) != nil {
		v := validator{file: f}
		v.acceptance("", a)
		if len(a.Checks) == 0 && len(a.Protected) == 0 && err == nil {
			v.problems = append(v.problems, Problem{Position: Position{File: name},
				Hint: "write checks: or protected:, or leave the file out", Message: "there is no check in it, and nothing protected"})
			v.at = append(v.at, "")
		}
		err = v.together()
	}
	if e, ok := errors.AsType[*Error](err); ok {
		e.general = "docs/acceptance.md says what a file of checks may hold"
	}
	return a, err
}

// kinds counts what c says to check.
func (c Check) kinds() (n int) {
	for _, set := range []bool{len(c.Run) > 0, c.Shell != "", c.File != nil} {
		if set {
			n++
		}
	}
	return n
}

// check is c as package run takes it.
func (c Check) check() run.Check {
	out := run.Check{Name: c.Name, Argv: c.Run, Shell: c.Shell, Cwd: c.Cwd, Env: c.Env, Timeout: time.Duration(c.Timeout)}
	if f := c.File; f != nil {
		out.File = &run.FileCheck{Path: f.Path, Absent: f.Absent, MinBytes: int64(f.MinBytes), MaxBytes: int64(f.MaxBytes),
			Contains: f.Contains, Matches: f.Matches, SHA256: f.SHA256, Schema: json.RawMessage(f.Schema)}
	}
	return out
}

// RunChecks are the checks as package run takes them.
func (a Acceptance) RunChecks() []run.Check {
	var out []run.Check
	for _, c := range a.Checks {
		out = append(out, c.check())
	}
	return out
}

func (v *validator) acceptance(at string, a Acceptance) {
	for i, c := range a.Checks {
		p := join(at, fmt.Sprintf("checks[%d]", i))
		if n := c.kinds(); n != 1 {
			v.fault(p, "write exactly one of run:, shell: and file:", "a check is one of run, shell and file, not %d of them", n)
		} else if err := c.check().Validate(); err != nil {
			hint := "docs/acceptance.md says what a check takes"
			e, ok := errors.AsType[*run.UsageError](err)
			if !ok {
				e = &run.UsageError{Reason: err.Error()}
			}
			v.fault(p, cmp.Or(e.Hint(), hint), "%s", e.Reason)
		}
		for name := range c.Env {
			if !envName.MatchString(name) {
				v.fault(p+".env."+name, "letters, digits and underscore", "%q is no name of a variable", name)
			}
		}
	}
	if a.Retry < 0 || a.Retry > run.MaxRetry {
		v.fault(join(at, "retry"), fmt.Sprintf("write a number from 1 to %d, or leave it out", run.MaxRetry), "%d cannot be how often checks are told", a.Retry)
	}
	if (a.Fresh || a.Retry > 0) && len(a.Checks) == 0 {
		key := "fresh"
		if a.Retry > 0 {
			key = "retry"
		}
		v.fault(join(at, key), "write checks:, or leave it out", "there are no checks to run anew or again")
	}
}

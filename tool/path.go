package tool

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rein-sh/rein/evidence"
)

// Names of files and directories that hold credentials, in lower case. A name
// with a slash is matched against the end of the path.
var (
	secretNames = []string{
		".env", ".envrc", ".aws", ".ssh", ".gnupg", ".kube", ".azure", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass",
		".my.cnf", ".git-credentials", ".htpasswd", ".vault-token", ".dockercfg", ".boto", ".s3cfg", ".terraformrc",
		"kubeconfig", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.tfrc.json",
	}
	secretPaths = []string{
		".docker/config.json", ".config/gcloud", ".config/gh", ".cargo/credentials", ".cargo/credentials.toml",
		".gem/credentials", ".composer/auth.json", ".m2/settings.xml", ".gradle/gradle.properties", ".yarnrc.yml",
		"etc/rancher/k3s/k3s.yaml", "etc/kubernetes/admin.conf",
	}
	// samples of .env files hold no values.
	samples = []string{".example", ".sample", ".template", ".dist", ".schema"}
)

// Secret reports whether the path is one where credentials are kept: the file
// itself, or something in a directory of them. Upper and lower case are the
// same, since some file systems think so.
func Secret(name string) bool {
	parts := strings.Split(strings.ToLower(path.Clean(name)), "/")
	for i, p := range parts {
		if slices.Contains(secretNames, p) || strings.HasSuffix(p, ".kubeconfig") {
			return true
		}
		if strings.HasPrefix(p, ".env.") && !slices.ContainsFunc(samples, func(s string) bool { return strings.HasSuffix(p, s) }) {
			return true
		}
		here := strings.Join(parts[:i+1], "/")
		for _, s := range secretPaths {
			if here == s || strings.HasSuffix(here, "/"+s) {
				return true
			}
		}
	}
	return false
}

// place is where a path of a model leads: the directory it must stay in, and
// the absolute path.
type place struct{ root, path string }

// locate finds the root that holds name. Names are relative to the workspace,
// the first root.
func locate(name string, roots []string) (place, *Error) {
	fail := func(code, message, hint string) (place, *Error) {
		return place{}, &Error{Class: Classify(OpRead, code), Code: code, Message: message, Hint: hint}
	}
	if name == "" || strings.ContainsRune(name, 0) {
		return fail(CodeInvalidArguments, "arguments/path: it is empty or has a NUL byte", "give the path of a file")
	}
	full := name
	if !path.IsAbs(full) {
		full = path.Join(roots[0], full)
	}
	full = path.Clean(full)
	for _, root := range roots {
		if full != root && !strings.HasPrefix(full, strings.TrimSuffix(root, "/")+"/") {
			continue
		}
		if Secret(strings.TrimPrefix(full, root)) {
			return fail(CodeSecretPath, fmt.Sprintf("%s is where credentials are kept and stays closed", evidence.Cut(full, 200)),
				"no task needs its content; say in your answer what you would need")
		}
		return place{root: root, path: full}, nil
	}
	return fail(CodePathDenied, fmt.Sprintf("%s is outside of %s", evidence.Cut(full, 200), strings.Join(roots, ", ")),
		"use a path beneath "+roots[0])
}

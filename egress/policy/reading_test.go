package policy_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/policy"
)

// asked is a request within TLS, as "METHOD host path?query".
func asked(t testing.TB, p *policy.Policy, text string, change func(*policy.Request)) policy.Verdict {
	t.Helper()
	part := strings.Fields(text)
	path, query, _ := strings.Cut(part[2], "?")
	r := policy.Request{Stage: policy.AtHTTP, Name: part[1], Port: 443, Host: part[1], Method: part[0], Path: path, Query: query, Secure: true}
	if change != nil {
		change(&r)
	}
	return p.Decide(r)
}

// Bundles let reading through, and nothing that leaves something there.
func TestBundleReads(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Bundles: []string{"pypi", "npm", "go", "crates", "github-read", "huggingface"}})
	for _, text := range []string{
		"GET pypi.org /simple/requests/", "HEAD files.pythonhosted.org /packages/a.whl", "GET registry.npmjs.org /@babel%2fcore?write=true",
		"GET proxy.golang.org /github.com/!azure/x/@v/list", "GET index.crates.io /se/rd/serde", "GET github.com /acme/tool/releases/download/cmd%2Fv1/x",
		"GET github.com /acme/tool.git/info/refs?service=git-upload-pack", "POST github.com /acme/tool.git/git-upload-pack", "POST github.com /acme/tool/git-upload-pack",
		"GET huggingface.co /a/b/resolve/main/c%2Fd",
	} {
		if v := asked(t, p, text, nil); !v.Allowed() || !v.Reads || !strings.HasPrefix(v.Rule, "bundles.") {
			t.Errorf("%s: %+v", text, v)
		}
	}
	for _, text := range []string{
		"PUT registry.npmjs.org /left-pad", "POST registry.npmjs.org /-/v1/login", "DELETE registry.npmjs.org /a", "POST pypi.org /legacy/", "OPTIONS pypi.org /",
		"get pypi.org /", "GETX pypi.org /", "POST huggingface.co /api/repos/create", "PUT cas-server.xethub.hf.co /v1/xorbs", "PATCH index.crates.io /",
		"POST github.com /acme/tool.git/git-receive-pack", "GET github.com /acme/tool.git/info/refs?service=git-receive-pack",
		"GET github.com /acme/tool.git/info/refs?service=git%2Dreceive-pack", "GET github.com /acme/tool.git/info/refs",
		"GET github.com /acme/tool.git/info/refs?service=git-upload-pack&service=git-receive-pack", "GET github.com /acme/tool.git/INFO%2frefs?service=git-receive-pack",
		"GET github.com /acme/tool.git/info/%72efs/?service=git-receive-pack", "GET github.com /acme/tool.git//info/refs?service=git-receive-pack",
		"HEAD github.com /acme/tool.git/info/refs?service=git-receive-pack",
		"POST github.com /acme/tool.git/git-upload-pack?service=x", "POST github.com /acme/tool/x/git-upload-pack", "POST github.com /git-upload-pack",
		"POST github.com /acme/tool/git-upload-pack/", "POST github.com /acme/%74ool/git-upload-pack", "PUT github.com /acme/tool.git/git-upload-pack",
		"POST github.com /acme/tool.git/info/lfs/objects/batch", "POST github.com /gist", "POST codeload.github.com /a/b/git-upload-pack", "POST registry.npmjs.org /a/b/git-upload-pack",
		"GET github.com /acme/..%2fother", "GET github.com /acme/tool/..;/x",
	} {
		if v := asked(t, p, text, nil); v.Allowed() || v.Reads || !strings.HasPrefix(v.Rule, "bundles.") {
			t.Errorf("%s: %+v", text, v)
		}
	}
	for name, change := range map[string]func(*policy.Request){
		"a body":      func(r *policy.Request) { r.Body = true },
		"a WebSocket": func(r *policy.Request) { r.Upgrade = true },
	} {
		for _, host := range []string{"pypi.org", "github.com"} {
			if v := asked(t, p, "GET "+host+" /x", change); v.Allowed() || !strings.Contains(v.Reason, name) {
				t.Errorf("%s with %s: %+v", host, name, v)
			}
		}
	}
	if v := asked(t, p, "POST github.com /acme/tool.git/git-upload-pack", func(r *policy.Request) { r.Body = true }); !v.Allowed() {
		t.Errorf("what git wants: %+v", v)
	}
	if v := p.HTTP("pypi.org", 443, "pypi.org", "GET", "/"); v.Allowed() {
		t.Errorf("without TLS: %+v", v)
	}
}

// A bundle of one repository is for its paths alone.
func TestBundleOfRepository(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Bundles: []string{"github:Acme/Tool.git", "github:acme/lib"}})
	for _, text := range []string{
		"GET github.com /acme/tool", "GET github.com /Acme/Tool/archive/refs/heads/main.tar.gz", "GET github.com /acme/tool.git/info/refs?service=git-upload-pack",
		"POST github.com /acme/tool/git-upload-pack", "GET github.com /ACME/LIB/releases/download/a%2Fb/c", "GET codeload.github.com /acme/tool/tar.gz/refs/heads/main",
		"GET raw.githubusercontent.com /acme/lib/main/x", "GET objects.githubusercontent.com /github-production-release-asset/1/2?X-Amz-Signature=3",
	} {
		if v := asked(t, p, text, nil); !v.Allowed() || !v.Reads {
			t.Errorf("%s: %+v", text, v)
		}
	}
	for _, text := range []string{
		"GET github.com /", "GET github.com /acme", "GET github.com /acme/", "GET github.com /acme/tools", "GET github.com /acme/tool-x/y", "GET github.com /acme/tool.wiki.git/info/refs?service=git-upload-pack",
		"GET github.com /other/tool", "GET github.com /acme/tool/../other", "GET github.com /acme/tool/%2e%2e/other", "GET github.com /acme/tool/..%2F..%2Fother",
		"GET github.com /acme%2ftool/x", "GET github.com //acme/tool", "GET github.com /acme/tool%2f..%2fother/x", "GET github.com /acme/tool\\..\\other",
		"POST github.com /acme/other/git-upload-pack", "GET github.com /acme/other.git/info/refs?service=git-upload-pack",
		"POST github.com /acme/tool/git-receive-pack", "GET codeload.github.com /other/tool/tar.gz/main", "GET raw.githubusercontent.com /other/tool/main/x",
	} {
		if v := asked(t, p, text, nil); v.Allowed() {
			t.Errorf("%s: %+v", text, v)
		}
	}
	if v := asked(t, p, "GET github.com /other/tool", nil); !strings.Contains(v.Reason, `the bundle is for Acme/Tool, and this is "/other/tool"`) {
		t.Errorf("%+v", v)
	}
	said := strings.Join(p.Summary(), "\n")
	if want := "bundles.github:acme/lib allows github.com on port 443 (https), methods GET, HEAD, and git fetch, of acme/lib alone"; !strings.Contains(said, want) {
		t.Errorf("%s", said)
	}
}

// What a rule beside a bundle allows is not limited by it, and what only a bundle
// allows is denied by no default.
func TestBundleBesideRules(t *testing.T) {
	t.Parallel()
	p := compile(t, policy.Document{Bundles: []string{"npm"}, Rules: []policy.Rule{{Host: "registry.npmjs.org", Proto: "https", Methods: []string{"PUT"}, Paths: []string{"/mine"}}}})
	for text, want := range map[string]struct{ allowed, reads bool }{
		"PUT registry.npmjs.org /mine": {true, false}, "GET registry.npmjs.org /mine": {true, true}, "PUT registry.npmjs.org /other": {false, false},
	} {
		if v := asked(t, p, text, nil); v.Allowed() != want.allowed || v.Reads != want.reads {
			t.Errorf("%s: %+v", text, v)
		}
	}
	// A rule of tls is no way past it.
	p = compile(t, policy.Document{Bundles: []string{"npm"}, Rules: []policy.Rule{{Host: "registry.npmjs.org"}}})
	if v := p.Connect("registry.npmjs.org", 443); v.Proto != policy.HTTPS {
		t.Errorf("%+v", v)
	}
	p = compile(t, policy.Document{Bundles: []string{"npm"}, ReportOnly: true, Origin: policy.OriginHost})
	if v := asked(t, p, "PUT registry.npmjs.org /x", nil); !v.Allowed() || !v.Reported || v.Reads {
		t.Errorf("%+v", v)
	}
	p = compile(t, policy.Document{Bundles: []string{"npm"}, Mode: "ordered", Default: "allow", Origin: policy.OriginHost})
	if v := asked(t, p, "PUT registry.npmjs.org /x", nil); v.Allowed() {
		t.Errorf("%+v", v)
	}
	// Debian's are spoken without TLS, too.
	p = compile(t, policy.Document{Bundles: []string{"debian"}})
	if v := p.HTTP("deb.debian.org", 80, "deb.debian.org", "GET", "/debian/dists/x"); !v.Allowed() || !v.Reads {
		t.Errorf("%+v", v)
	}
	if v := p.HTTP("deb.debian.org", 80, "deb.debian.org", "POST", "/debian/dists/x"); v.Allowed() {
		t.Errorf("%+v", v)
	}
}

// Whatever a path and a query are, what passes is of the repository, as servers
// read it, and is no push.
func FuzzReading(f *testing.F) {
	for _, s := range []string{"/acme/tool", "/acme/tool.git/info/refs", "/acme/tool/git-upload-pack", "/acme/tool/..%2f..%2fother", "/ACME/Tool/%69nfo/refs", "/acme/tool/git-receive-pack", "//acme/tool", "/acme/tool/a%2fb"} {
		f.Add("GET", s, "service=git-upload-pack", false)
		f.Add("POST", s, "", true)
	}
	p, err := policy.Compile(policy.Document{Bundles: []string{"github:acme/tool"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target, query string, body bool) {
		v := p.Decide(policy.Request{Stage: policy.AtHTTP, Name: "github.com", Port: 443, Host: "github.com", Method: method, Path: target, Query: query, Body: body, Secure: true})
		if !v.Allowed() {
			return
		}
		target, _, _ = strings.Cut(target, "?")
		plain, err := url.PathUnescape(target)
		if err != nil || !v.Reads {
			t.Fatalf("%s %q: %v, %+v", method, target, err, v)
		}
		read := strings.ToLower(path.Clean(plain))
		if read != "/acme/tool" && read != "/acme/tool.git" && !strings.HasPrefix(read, "/acme/tool/") && !strings.HasPrefix(read, "/acme/tool.git/") {
			t.Fatalf("%s %q is read as %q", method, target, read)
		}
		fetch := method == "POST" && strings.HasSuffix(target, "/git-upload-pack") && query == ""
		if !fetch && (body || method != "GET" && method != "HEAD") || strings.HasSuffix(read, "/info/refs") && query != "service=git-upload-pack" {
			t.Fatalf("%s %q ? %q, body %v", method, target, query, body)
		}
	})
}

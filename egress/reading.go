package egress

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/vault"
)

// needed are the fields of a request that reads which go out: what servers need to
// answer it. Nothing else does, so that no credential of anybody's gets there,
// whatever it is called.
var needed = map[string]bool{
	"Accept": true, "Accept-Charset": true, "Accept-Encoding": true, "Accept-Language": true, "Cache-Control": true, "Pragma": true,
	"If-Match": true, "If-Modified-Since": true, "If-None-Match": true, "If-Range": true, "If-Unmodified-Since": true, "Range": true,
	"Content-Encoding": true, "Content-Length": true, "Te": true, "Expect": true, "Git-Protocol": true,
}

// product is a program that makes requests, and the first number of its version.
// What else clients say of themselves, and of a longer version every digit, is in
// public statistics of PyPI, which anybody can read.
var product = regexp.MustCompile(`^(Apache-HttpClient|Apache-Maven|Bazel|Bun|Debian|Deno|Go|Go-http-client|Gradle|Homebrew|Java|Java-http-client|` +
	`Python|Python-urllib|Ruby|Wget|aria2|bun|bundler|cargo|conda|curl|git|hf_hub|huggingface_hub|libcurl|mamba|node|node-fetch|npm|pdm|pex|pip|pnpm|poetry|` +
	`python-httpx|python-requests|setuptools|undici|uv|yarn)(/[0-9]{1,2})?(\.[0-9.]*)?;?$`)

// fetchType is the type of what git fetch sends (gitprotocol-http). Some servers
// look for another method in a body that is a form.
const fetchType = "application/x-git-upload-pack-request"

// readsKey is where the context of a request says that it may pass for reading
// alone.
type readsKey struct{}

func reads(r *http.Request) bool { return r.Context().Value(readsKey{}) != nil }

// reduce takes out of a request that reads what that does not need, and returns the
// names of the fields that held credentials.
func reduce(out *http.Request) (credentials []string) {
	for name := range out.Header {
		switch {
		case needed[name]:
		case name == "User-Agent":
			agent, _, _ := strings.Cut(out.Header.Get(name), " ")
			said := "rein" // some servers want one
			if m := product.FindStringSubmatch(agent); m != nil {
				said = m[1] + m[2]
			}
			out.Header[name] = []string{said}
		default:
			out.Header.Del(name)
			delete(out.Header, name) // in another spelling
			if vault.IsCredential(name) {
				credentials = append(credentials, name)
			}
		}
	}
	if out.Method == http.MethodPost { // git fetch, as nothing else that reads
		out.Header.Set("Content-Type", fetchType)
	}
	out.Trailer = nil
	return credentials
}

// maxTaken bounds the names that a record has.
const maxTaken = 8

// took notes the fields of credentials that were taken out of a request.
func (f *flow) took(names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if name = clip(name); !slices.Contains(f.taken, name) && len(f.taken) < maxTaken {
			f.taken = append(f.taken, name)
		}
	}
}

// takenOut says for the record what took was told.
func (f *flow) takenOut() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.taken) == 0 {
		return ""
	}
	slices.Sort(f.taken)
	return "credentials that a bundle does not let through were taken out: " + strings.Join(f.taken, ", ")
}

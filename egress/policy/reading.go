package policy

import (
	"net/url"
	"strings"
)

// Forms of a bundle's hosts: what may be read there.
const (
	formFiles      = ""           // what GET and HEAD fetch
	formGit        = "git"        // also what git does, over HTTPS; of a repository's bundle, below its path alone
	formRepository = "repository" // files; of a repository's bundle, below its path alone
)

// reading is what a rule of a bundle lets through: requests that fetch something
// and can leave nothing there.
type reading struct {
	git         bool
	owner, repo string // the only repository; empty: any
}

// readingOf is what a bundle's rule for a host of this form lets through.
func readingOf(bundle, form string) *reading {
	l := &reading{git: form == formGit}
	if rest, ok := strings.CutPrefix(bundle, repositoryPrefix); ok && form != formFiles {
		l.owner, l.repo, _ = strings.Cut(rest, "/")
		l.repo = withoutGit(l.repo)
	}
	return l
}

func withoutGit(repo string) string {
	const suffix = ".git"
	if len(repo) > len(suffix) && strings.EqualFold(repo[len(repo)-len(suffix):], suffix) {
		return repo[:len(repo)-len(suffix)]
	}
	return repo
}

// says adds to the words of a rule.
func (l *reading) says() string {
	said := ""
	if l.git {
		said += ", and git fetch"
	}
	if l.repo != "" {
		said += ", of " + l.owner + "/" + l.repo + " alone"
	}
	return said
}

// The paths of git's protocol over HTTPS (gitprotocol-http), after those of a
// repository.
const (
	gitFetch    = "git-upload-pack" // what it is called by the server
	gitRefs     = "/info/refs"
	gitRefsRead = "service=" + gitFetch
)

// refuses says why the rule does not let a request through; empty when it does.
func (l *reading) refuses(r Request) string {
	path, _, _ := strings.Cut(r.Path, "?")
	fetch := l.git && r.Method == "POST" && l.fetches(path)
	switch {
	case !fetch && r.Method != "GET" && r.Method != "HEAD":
		return "a bundle lets nothing but reading through"
	case !fetch && r.Body:
		return "a bundle lets nothing but reading through, and this request has a body"
	case r.Upgrade:
		return "a bundle lets nothing but reading through, and this request asks for a WebSocket"
	case fetch && r.Query != "":
		return "git fetch has no query"
	case (l.git || l.repo != "") && !gitPlain(path):
		return "the path " + quote(path) + " is not in its plain form"
	case l.repo != "" && !l.names(path):
		return "the bundle is for " + l.owner + "/" + l.repo + ", and this is " + quote(path)
	case l.git && asksForRefs(path) && r.Query != gitRefsRead:
		return "of a repository's refs only those to fetch are let through, as git push asks for others"
	}
	return ""
}

// fetches reports whether a path is the one that git fetch sends what it wants to.
func (l *reading) fetches(path string) bool {
	part := strings.Split(path, "/")
	return len(part) == 4 && part[0] == "" && githubName(part[1]) && githubName(part[2]) && part[3] == gitFetch
}

// names reports whether a path is one of the repository. Servers take owners and
// repositories in any case.
func (l *reading) names(path string) bool {
	part := strings.SplitN(path, "/", 4)
	return len(part) >= 3 && part[0] == "" && strings.EqualFold(part[1], l.owner) && strings.EqualFold(withoutGit(part[2]), l.repo)
}

// asksForRefs reports whether a server may take a path for that of a repository's
// refs.
func asksForRefs(path string) bool {
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	return strings.HasSuffix(strings.TrimRight(strings.ToLower(path), "/"), gitRefs)
}

// gitPlain is plainPath, but that names within a repository may have slashes that
// are escaped: those of tags do.
func gitPlain(path string) bool {
	return plainPath(strings.NewReplacer("%2F", "/", "%2f", "/").Replace(path))
}

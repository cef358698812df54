package layer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

// npm runs it, and says why it failed.
func (in *installation) npm(ctx context.Context, what, script string, args ...string) error {
	r, err := in.box.Run(ctx, in.command(script, args...))
	if err != nil || r.OK() {
		return err
	}
	why, advice := in.why(r)
	if why != "" {
		what += ": " + why
	}
	return &Error{Kind: KindInstall, Op: "install", Subject: in.p.String(), Err: errors.New(what), Advice: advice}
}

// why says what a failed npm came to, by the record of its network and its own words,
// and what to do.
func (in *installation) why(r sandbox.Result) (why, advice string) {
	said := readWords(string(r.Stderr.Head) + "\n" + string(r.Stderr.Tail))
	if n, rules := denied(r.Network, in.registry); n != nil {
		why = fmt.Sprintf("its network denied %s port %d (%s)", cmp.Or(n.Name, n.Address), n.Port, n.Reason)
		if len(rules) > 0 {
			return why, "if that is where the registry is, let the configuration say: agents: {allow: [" + strings.Join(rules, ", ") + "]}"
		}
		if said.text() != "" {
			why += ": " + said.text()
		}
		return why, "agents: registry: and agents: allow: of the configuration say what an installation may reach"
	}
	switch said.code {
	case "ETARGET", "ENOVERSIONS":
		return in.none(said), "npm view " + in.p.Name + " versions" + in.elsewhere() + " lists those that there are; without a version the newest is installed"
	case "E404":
		return in.none(said), "check the name, and agents: registry: of the configuration; a registry may hide a package from those who do not say who they are (agents: key:)"
	case "E401", "E403", "ENEEDAUTH":
		advice = "agents: key: and user: of the configuration say what the registry wants to know"
	}
	return said.text(), advice
}

// namedMissing is a package in what npm says of one that is not there.
var namedMissing = regexp.MustCompile(`'((?:@[^@'\s]+/)?[^@'\s]+)@[^'\s]*'|No matching version found for ((?:@[^@\s]+/)?[^@\s]+@\S+)`)

// none says what is not in the registry: the package, or what it depends on.
func (in *installation) none(said words) string {
	host, what, more := in.registry, "package "+in.p.Name, ""
	if u, err := url.Parse(in.registry); err == nil && u.Host != "" {
		host = u.Host
	}
	switch {
	case said.code == "ENOVERSIONS":
		what = "version of " + in.p.Name
	case said.code == "ETARGET":
		what = in.p.String()
	}
	if m := namedMissing.FindStringSubmatch(said.all); m != nil {
		if is := strings.TrimSuffix(m[1]+m[2], "."); is != in.p.Name && is != in.p.String() {
			what, more = evidence.Cut(is, 100), ", which it needs"
		}
	}
	return fmt.Sprintf("%s has no %s%s (%s)", host, what, more, said.code)
}

// elsewhere is npm's flag for a registry that is not its own.
func (in *installation) elsewhere() string {
	if in.registry == npmRegistry {
		return ""
	}
	return " --registry " + in.registry
}

// mostOpened is how many addresses a hint names.
const mostOpened = 4

// denied is the first that the network denied, nil for none: before others the
// registry at addresses that a rule can open, with those rules, quoted. What anything
// else tried is no reason to open an address.
func denied(records []sandbox.NetworkRecord, registry string) (first *sandbox.NetworkRecord, rules []string) {
	u, err := url.Parse(registry)
	if err != nil {
		u = &url.URL{} // Open has refused it
	}
	proto := map[string]string{"http": "http", "https": "tls"}[u.Scheme]
	for i, n := range records {
		if n.Verdict != "deny" {
			continue
		}
		if n.Address != "" && n.Port != 0 && n.Name != "" && strings.EqualFold(n.Name, u.Hostname()) && policy.Openable(n.Rule) {
			if len(rules) == 0 {
				first = &records[i]
			}
			rule := strconv.Quote(net.JoinHostPort(n.Address, strconv.Itoa(n.Port)) + "/" + proto)
			if !slices.Contains(rules, rule) && len(rules) < mostOpened {
				rules = append(rules, rule)
			}
		} else if first == nil {
			first = &records[i]
		}
	}
	return first, rules
}

// mostSaid is how much of what npm printed is in an error, in bytes.
const mostSaid = 240

// words are what npm printed of an error.
type words struct {
	code string // such as E404
	line string // the one that says most; without npm's own lines, the last that were printed
	all  string // npm's own lines
}

// text is the error in one line.
func (w words) text() string {
	switch {
	case w.code == "" || strings.Contains(w.line, w.code):
		return w.line
	case w.line == "":
		return w.code
	case w.numbered():
		return "exit code " + w.code + ": " + w.line
	}
	return w.code + ": " + w.line
}

// detail is of npm's lines that say nothing by themselves: the parts of a system's
// error, and places in its program.
var detail = regexp.MustCompile(`^(syscall|errno|path|dest|signal|stack|type|command) |^at |^[{}]|^[a-zA-Z]+: .*,$|^$`)

// readWords finds npm's error in what it printed.
func readWords(text string) (w words) {
	var errs, all []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(evidence.Visible(strings.ReplaceAll(line, "\t", " ")))
		rest, ok := strings.CutPrefix(line, "npm error")
		if !ok {
			rest, ok = strings.CutPrefix(line, "npm ERR!")
		}
		rest = strings.TrimSpace(rest)
		if code, is := strings.CutPrefix(rest, "code "); ok && is {
			w.code = cmp.Or(w.code, evidence.Cut(code, 40))
		} else if ok && !strings.HasPrefix(rest, "A complete log of this run") {
			errs = append(errs, rest)
		} else if !ok && line != "" {
			all = append(all, line)
		}
	}
	w.all = strings.Join(errs, "\n")
	if i := slices.IndexFunc(errs, func(s string) bool { return !detail.MatchString(s) }); i >= 0 {
		for _, tag := range []string{"404 ", "notarget ", "network "} {
			errs[i] = strings.TrimPrefix(errs[i], tag)
		}
		w.line = strings.TrimSpace(errs[i])
	} else if w.code == "" || w.numbered() {
		w.line = strings.Join(all[max(0, len(all)-3):], "; ")
	}
	w.line = evidence.Cut(w.line, mostSaid)
	return w
}

// numbered reports whether the code is the exit code of a script.
func (w words) numbered() bool {
	_, err := strconv.Atoi(w.code)
	return err == nil
}

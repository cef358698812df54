package command

import (
	"regexp"
	"slices"
	"strings"
)

// gitStarts looks for what git starts by its words. What it starts by the
// repository's configuration is out of sight: hooks, filters, pagers.
func gitStarts(args []string) (u unlisted) {
	i := 0
	for ; i < len(args) && strings.HasPrefix(args[i], "-"); i++ {
		switch a := args[i]; {
		case a == "-c" && i+1 < len(args):
			i++
			u.setting(args[i])
		case a == "-C":
			i++
		case slices.Contains(gitPlain, a):
		default: // its programs, or a repository's configuration, are elsewhere
			u.run()
			if slices.Contains(gitValued, a) {
				i++
			}
		}
	}
	if i >= len(args) {
		return u
	}
	name, rest := args[i], args[i+1:]
	if !slices.Contains(gitCommands, name) { // an alias, or a program that is called git-NAME
		u.run()
	}
	starts := 0
	for i, a := range rest {
		long := gitLong
		if name == "clone" || name == "init" {
			long = gitCloneLong
		}
		if value, is := optionOf(rest[i:], gitShort[name][0], gitShort[name][1], long); is {
			u.run(value)
		}
		if slices.Contains(gitRemote, name) && gitHelper.MatchString(a) {
			_, value, _ := strings.Cut(a, "::")
			u.run(value)
		}
		if starts < MaxNested && slices.Contains([]string{"bisect run", "submodule foreach"}, name+" "+a) {
			starts++ // what follows the first has all that follows others
			u.run(strings.Join(rest[i+1:], " "))
		}
	}
	if name == "config" {
		u.configures(rest)
	}
	return u
}

// setting is NAME=VALUE of git -c. Most settings name programs, or change which
// do.
func (u *unlisted) setting(s string) {
	name, value, _ := strings.Cut(s, "=")
	name = strings.ToLower(name)
	switch {
	case gitHarmless.MatchString(name), name == "core.pager" && value == "cat", name == "commit.gpgsign" && value == "false":
	case gitProgram.MatchString(name) || strings.HasPrefix(value, "!"):
		u.run(strings.TrimPrefix(value, "!"))
	default:
		u.run()
	}
}

// configures looks at git config, which sets what later commands start.
func (u *unlisted) configures(args []string) {
	reads := git(append([]string{"config"}, args...)) == ""
	for i, a := range args {
		switch {
		case reads || a == "list" || a == "get":
			return
		case strings.HasPrefix(a, "-") || a == "set" || a == "unset":
		case i+1 < len(args):
			u.setting(a + "=" + args[i+1])
			return
		default: // one name alone is looked up
			return
		}
	}
}

var (
	gitPlain     = []string{"--no-pager", "-P", "--version", "-v", "--help", "-h", "--no-replace-objects", "--no-optional-locks", "--literal-pathspecs", "--glob-pathspecs", "--icase-pathspecs", "--noglob-pathspecs"}
	gitValued    = []string{"--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source"}
	gitLong      = []string{"--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--open-files-in-pager"}
	gitCloneLong = []string{"--upload-pack", "--config", "--template"}
	gitShort     = map[string][2]string{"rebase": {"x", "XsC"}, "clone": {"cu", "obj"}, "grep": {"O", "eABCmf"}} // and those that take a value
	gitRemote    = []string{"clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "archive", "fetch-pack", "send-pack"}
	gitHelper    = regexp.MustCompile(`^[A-Za-z0-9+.-]+::`)
	gitHarmless  = regexp.MustCompile(`^(user|color|advice)\.|^(core\.(quotepath|autocrlf|eol|abbrev)|init\.defaultbranch|safe\.directory|log\.(date|decorate)|push\.(default|autosetupremote)|pull\.(rebase|ff)|diff\.(renames|algorithm)|merge\.conflictstyle)$`)
	gitProgram   = regexp.MustCompile(`pager|editor|command|program|helper|external|textconv|process|clean|smudge|driver|fsmonitor|cmd|askpass|^alias`)
	gitCommands  = strings.Fields(`add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap check-ref-format checkout
		checkout-index cherry cherry-pick clean clone column commit commit-graph commit-tree config count-objects describe diff diff-files diff-index diff-tree
		fast-export fast-import fetch fetch-pack fmt-merge-msg for-each-ref format-patch fsck gc grep hash-object help index-pack init interpret-trailers log
		ls-files ls-remote ls-tree mailinfo mailsplit merge merge-base merge-file merge-tree mktag mktree multi-pack-index mv name-rev notes pack-objects
		pack-refs patch-id prune prune-packed pull push range-diff read-tree rebase reflog remote repack replace request-pull rerere reset restore rev-list
		rev-parse revert rm send-pack shortlog show show-branch show-index show-ref sparse-checkout stage stash status stripspace submodule switch
		symbolic-ref tag unpack-file unpack-objects update-index update-ref update-server-info var verify-commit verify-pack verify-tag version whatchanged
		worktree write-tree`)
)

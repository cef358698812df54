package command

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// unlisted is what a program's own words have it start or obey besides what it
// is.
type unlisted struct {
	starts bool     // something that is not listed, or may be none of its own
	code   []string // what that may be, as command lines
	files  []string // what it reads as its program
}

// run notes that it starts something, and what that may be.
func (u *unlisted) run(code ...string) {
	u.starts, u.code = true, append(u.code, code...)
}

// script notes a file that is read as a program; what is no file of a name is
// not to be seen.
func (u *unlisted) script(name string) {
	if name == "-" || strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/proc/") {
		u.starts = true
		return
	}
	u.files = append(u.files, name)
}

// starters are programs that start others, though it is not what they are for,
// when their words say so. The list cannot be complete.
var starters = map[string]func(args []string) unlisted{
	"git": gitStarts, "tar": tarStarts, "gtar": tarStarts, "bsdtar": tarStarts, "sed": sedStarts, "gsed": sedStarts,
	"make": makeStarts, "gmake": makeStarts, "go": goStarts, "zip": zipStarts, "socat": socatStarts,
	"awk": awkStarts, "gawk": awkStarts, "mawk": awkStarts, "nawk": awkStarts, "original-awk": awkStarts,
	"sort":    byOption("", "kStTo", "--compress-program"),
	"split":   byOption("", "abClnt", "--filter"),
	"rsync":   byOption("e", "fBTM@", "--rsh", "--rsync-path"),
	"scp":     byOption("SoFDJ", "ciPlX"),
	"sftp":    byOption("SoFDJ", "BbciPlRsX"),
	"rg":      byOption("", "efgjmtTABCEMdr", "--pre", "--hostname-bin"),
	"cpio":    byOption("", "CEFHIMORD", "--rsh-command"),
	"tcpdump": byOption("z", "BcCFGijmMrsTVwWyQE"),
	"wget":    byOption("e", "oaiBtOTwQPUlADRIX", "--execute", "--config", "--use-askpass"),
	"nc":      byOption("ec", "pswqiIoOPTVWXxgGdm"),
	"ncat":    byOption("ec", "pswidmoxgG", "--exec", "--sh-exec", "--lua-exec"),
	"man":     byOption("PH", "CMSsepLmr", "--pager", "--html"),
	"cargo":   byOption("", "jpFCZ", "--config"),
	"gcc":     compilerStarts, "g++": compilerStarts, "cc": compilerStarts, "c++": compilerStarts, "clang": compilerStarts, "clang++": compilerStarts,
}

// versioned is a program's name with its version: gcc-12.
var versioned = regexp.MustCompile(`-[0-9][0-9.]*$`)

// hides marks a command whose own words have it start others, and lists what
// those may be.
func (w *walker) hides(c Simple) {
	name := path.Base(c.Name())
	look := starters[versioned.ReplaceAllString(name, "")]
	if look == nil {
		w.add(c)
		return
	}
	args := make([]string, 0, len(c.Words))
	for _, word := range c.Words[1:] {
		args = append(args, word.Text)
	}
	u := look(args)
	for _, f := range u.files {
		if !slices.Contains(c.Executes, f) {
			c.Executes = append(c.Executes, f)
		}
	}
	if c.Unseen = u.starts; u.starts && c.Form == Plain {
		c.Form = Wrapper
	}
	w.add(c)
	for _, code := range u.code {
		w.glimpse(code, name)
	}
}

// byOption are programs that start what one of these options gives them: letters,
// wherever they stand in a group, and long ones, which may be abbreviated. Valued
// are the other letters that take a value.
func byOption(short, valued string, long ...string) func(args []string) unlisted {
	return func(args []string) (u unlisted) {
		for i := range args { // not even "--" ends them: it may be the value of one
			if value, is := optionOf(args[i:], short, valued, long); is {
				u.run(value)
			}
		}
		return u
	}
}

// optionOf reports whether the first argument has one of these options, and its
// value.
func optionOf(args []string, short, valued string, long []string) (value string, is bool) {
	next := ""
	if len(args) > 1 {
		next = args[1]
	}
	a := args[0]
	if strings.HasPrefix(a, "--") {
		name, value, has := strings.Cut(a, "=")
		if !abbreviates(name, long...) {
			return "", false
		}
		if !has {
			value = next
		}
		return value, true
	}
	if !strings.HasPrefix(a, "-") {
		return "", false
	}
	for i := 1; i < len(a); i++ {
		switch {
		case strings.IndexByte(short, a[i]) >= 0 && i+1 < len(a):
			return a[i+1:], true
		case strings.IndexByte(short, a[i]) >= 0:
			return next, true
		case strings.IndexByte(valued, a[i]) >= 0:
			return "", false
		}
	}
	return "", false
}

// abbreviates reports whether a word is one of these long options, or may stand
// for one.
func abbreviates(name string, long ...string) bool {
	return len(name) > 2 && slices.ContainsFunc(long, func(l string) bool { return strings.HasPrefix(l, name) })
}

// tar's first word may be its letters without a dash, whose values follow.
func tarStarts(args []string) (u unlisted) {
	long := []string{"--checkpoint-action", "--use-compress-program", "--to-command", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command", "--files-from"}
	for i, a := range args {
		switch {
		case a == "--file" || strings.HasPrefix(a, "--file=") || a == "--checkpoint" || strings.HasPrefix(a, "--checkpoint="):
		case i == 0 && !strings.HasPrefix(a, "-"):
			if strings.ContainsAny(a, "IFT") {
				u.run(args[1:]...)
			}
		default:
			if value, is := optionOf(args[i:], "IFT", "bCfgKLNVXH", long); is {
				u.run(strings.TrimPrefix(value, "exec="))
			}
		}
	}
	return u
}

// make runs what stands in its makefile. What is given to it otherwise is not
// to be seen there: variables, which its recipes start, and rules.
func makeStarts(args []string) (u unlisted) {
	for i, a := range args {
		name, value, assigned := strings.Cut(a, "=")
		file, isFile := optionOf(args[i:], "f", "CIoWEjlO", []string{"--file", "--makefile"})
		rule, isRule := optionOf(args[i:], "E", "CIoWfjlO", []string{"--eval"})
		switch {
		case isFile:
			u.script(file)
		case isRule:
			u.run(rule)
		case assigned && !strings.HasPrefix(name, "-") && strings.Trim(value, "0123456789") != "":
			u.run(value)
		}
	}
	return u
}

// go starts what is built, and its own tools, through what it is told.
func goStarts(args []string) (u unlisted) {
	for i, a := range args {
		name, value, has := strings.Cut(a, "=")
		if !has && i+1 < len(args) {
			value = args[i+1]
		}
		switch name = strings.Replace(name, "--", "-", 1); {
		case name == "-exec", name == "-toolexec", name == "-vettool":
			u.run(value)
		case (name == "-ldflags" || name == "-gccgoflags") && strings.Contains(value, "ext"):
			u.run()
		}
	}
	return u
}

func zipStarts(args []string) (u unlisted) {
	tested := false
	for i, a := range args {
		if value, is := optionOf(args[i:], "", "", []string{"--unzip-command"}); is {
			u.run(value)
		} else if !tested && strings.HasPrefix(a, "-") && strings.Contains(a, "TT") {
			tested = true // by one of all that follows
			u.run(args[i+1:]...)
		}
	}
	return u
}

var socatRuns = regexp.MustCompile(`(?i)\b(exec|system|shell):`)

func socatStarts(args []string) (u unlisted) {
	for _, a := range args {
		if socatRuns.MatchString(a) {
			_, value, _ := strings.Cut(a, ":")
			u.run(value)
		}
	}
	return u
}

// compilerStarts are the options of compilers with which they find their parts
// elsewhere.
func compilerStarts(args []string) (u unlisted) {
	for i, a := range args {
		switch {
		case a == "-wrapper" && i+1 < len(args):
			u.run(strings.ReplaceAll(args[i+1], ",", " "))
		case slices.ContainsFunc([]string{"@", "-wrapper", "-B", "-specs", "--specs", "-fplugin", "-iplugindir", "-fuse-ld", "--ld-path", "-Xclang", "-load"},
			func(p string) bool { return strings.HasPrefix(a, p) }):
			u.run()
		}
	}
	return u
}

// awk has a language of its own, in which much can be read without a doubt.
func awkStarts(args []string) (u unlisted) {
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "-F" || a == "-v":
			args = args[1:]
		case strings.HasPrefix(a, "-F"), strings.HasPrefix(a, "-v"), a == "--":
		case a == "-f" && len(args) > 1:
			u.script(args[1])
			return awkFiles(u, args[2:])
		case strings.HasPrefix(a, "-"):
			u.run()
			return u
		default:
			if awkRuns(a) {
				u.run(awkStrings(a)...)
			}
			return u
		}
		if len(args) > 0 {
			args = args[1:]
		}
	}
	return u
}

// awkFiles looks for more programs after a first one in a file.
func awkFiles(u unlisted, args []string) unlisted {
	for i, a := range args {
		switch {
		case a == "-f" && i+1 < len(args):
			u.script(args[i+1])
		case strings.HasPrefix(a, "-") && a != "--" && a != "-" && !strings.HasPrefix(a, "-F"):
			u.run()
		}
	}
	return u
}

func awkRuns(program string) bool {
	program = strings.ReplaceAll(program, "||", "")
	return slices.ContainsFunc([]string{"system", "|", "@", "extension", "\\\n"}, func(s string) bool { return strings.Contains(program, s) })
}

var quotedText = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// awkStrings are the strings in a program.
func awkStrings(program string) (list []string) {
	for _, m := range quotedText.FindAllStringSubmatch(program, -1) {
		list = append(list, m[1])
	}
	return list
}

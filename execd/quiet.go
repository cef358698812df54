package execd

import "maps"

// quiet keeps prompts, pagers, colours and progress, which are for people, out
// of what programs read.
var quiet = map[string]string{
	"CI": "1", "NO_COLOR": "1", "CLICOLOR": "0",
	"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "SYSTEMD_PAGER": "cat",
	"GIT_TERMINAL_PROMPT": "0", "DEBIAN_FRONTEND": "noninteractive", "PIP_NO_INPUT": "1",
	"PIP_PROGRESS_BAR": "off", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NPM_CONFIG_PROGRESS": "false", "CARGO_TERM_PROGRESS_WHEN": "never",
}

// QuietEnv is what rein's execd starts commands with, besides PATH, LANG and
// TERM. What is set for a sandbox or a command wins.
func QuietEnv() map[string]string { return maps.Clone(quiet) }

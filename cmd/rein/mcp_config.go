package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mcpHost is a program that uses servers of MCP, and how its configuration names one.
type mcpHost struct {
	file string // where it belongs
	// workspace is what the host makes of the directory that is open in it; empty: it
	// starts servers there.
	workspace string
	// print writes a server that is started, and remote one that is asked over HTTP.
	print  func(command string, args []string) string
	remote func(url string) string
}

// tokenVariable is where hosts find the token of "rein mcp --http".
const tokenVariable = "REIN_MCP_TOKEN"

var mcpHosts = map[string]mcpHost{
	"claude-code": {
		file:   ".mcp.json of the project, or: claude mcp add-json rein 'WHAT IS WITHIN \"rein\"'",
		print:  started("mcpServers", true),
		remote: asked("mcpServers", "type", "http", "url", "${"+tokenVariable+"}"),
	},
	"cursor": {
		file: ".cursor/mcp.json of the project, or ~/.cursor/mcp.json", workspace: "${workspaceFolder}",
		print:  started("mcpServers", false),
		remote: asked("mcpServers", "", "", "url", "${env:"+tokenVariable+"}"),
	},
	"vscode": {
		file: ".vscode/mcp.json of the project", workspace: "${workspaceFolder}",
		print:  started("servers", true),
		remote: asked("servers", "type", "http", "url", "${env:"+tokenVariable+"}"),
	},
	"codex": {
		file: "~/.codex/config.toml",
		print: func(command string, args []string) string {
			return fmt.Sprintf("[mcp_servers.rein]\ncommand = %s\nargs = %s\n", inJSON(command), strings.ReplaceAll(inJSON(args), `","`, `", "`))
		},
		remote: func(url string) string {
			return fmt.Sprintf("[mcp_servers.rein]\nurl = %s\nbearer_token_env_var = %q\n", inJSON(url), tokenVariable)
		},
	},
	"gemini": {
		file:   ".gemini/settings.json of the project, or ~/.gemini/settings.json",
		print:  started("mcpServers", false),
		remote: asked("mcpServers", "", "", "httpUrl", "$"+tokenVariable),
	},
}

func hostNames() string { return strings.Join(slices.Sorted(maps.Keys(mcpHosts)), ", ") }

// started is a server that the host starts, under a key.
func started(key string, typed bool) func(string, []string) string {
	return func(command string, args []string) string {
		server := struct {
			Type    string   `json:"type,omitempty"`
			Command string   `json:"command"`
			Args    []string `json:"args"`
		}{Command: command, Args: args}
		if typed {
			server.Type = "stdio"
		}
		return indented(map[string]any{key: map[string]any{"rein": server}})
	}
}

// asked is a server over HTTP, under a key.
func asked(key, typeKey, kind, urlKey, token string) func(string) string {
	return func(url string) string {
		server := map[string]any{urlKey: url, "headers": map[string]string{"Authorization": "Bearer " + token}}
		if typeKey != "" {
			server[typeKey] = kind
		}
		return indented(map[string]any{key: map[string]any{"rein": server}})
	}
}

func indented(v any) string {
	data, _ := json.MarshalIndent(v, "", "  ") // of strings alone
	return string(data) + "\n"
}

func inJSON(v any) string {
	data, _ := json.Marshal(v) // of strings alone
	return string(data)
}

// printMCPConfig prints what a host's configuration needs to say, with the flags that
// were given besides.
func (a *app) printMCPConfig(cmd *cobra.Command, f *mcpFlags) error {
	host, ok := mcpHosts[f.printConfig]
	if !ok {
		return usage(config.DidYouMean(f.printConfig, slices.Sorted(maps.Keys(mcpHosts))), "no host %q is known", f.printConfig)
	}
	exe, err := exeName()
	if err != nil {
		return err
	}
	a.note("for %s", host.file)
	if f.http.address != "" {
		a.note("the token is found in the variable %s of the host", tokenVariable)
		_, err = fmt.Fprint(a.out, host.remote(f.http.url()))
		return err
	}
	_, err = fmt.Fprint(a.out, host.print(exe, f.again(cmd, host)))
	return err
}

// again is the command line that does what this one would.
func (f *mcpFlags) again(cmd *cobra.Command, host mcpHost) []string {
	args := []string{mcpName}
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		values := []string{fl.Value.String()}
		if list, ok := fl.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if fl.Name == "print-config" {
			return
		}
		for _, v := range values {
			args = append(args, "--"+fl.Name+"="+v)
		}
	})
	if host.workspace != "" && !f.noWorkspace && !cmd.Flags().Changed("workspace") {
		args = append(args, "--workspace="+host.workspace)
	}
	return args
}

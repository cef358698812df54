package vault

import (
	"fmt"
	"strings"
)

// Says is the binding in words: "api.example.org on port 443, as bearer". What it
// says was written by whoever configures the host.
func (b Binding) Says() string {
	ports := []string{"443"}
	if len(b.Ports) > 0 {
		ports = strings.Fields(strings.Trim(fmt.Sprint(b.Ports), "[]"))
	}
	of := "port"
	if len(ports) > 1 {
		of = "ports"
	}
	said := fmt.Sprintf("%s on %s %s, as %s", b.Host, of, strings.Join(ports, ", "), b.As)
	if b.Name != "" {
		said += " " + b.Name
	}
	if len(b.In) > 0 {
		said += " in " + strings.Trim(strings.ReplaceAll(fmt.Sprint(b.In), " ", ", "), "[]")
	}
	if len(b.Methods) > 0 {
		said += ", methods " + strings.Join(b.Methods, ", ")
	}
	if len(b.Paths) > 0 {
		said += ", paths " + strings.Join(b.Paths, ", ")
	}
	return said
}

package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/run"
)

// approval adds the client's user to those who are asked, where the client can ask.
func (c *client) approval(o *run.Approval) *run.Approval {
	p := c.session.InitializeParams()
	if o == nil || p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil {
		return o
	}
	with := *o
	with.Channels = append(append([]approval.Channel(nil), o.Channels...), asker{c})
	return &with
}

// asker asks the client's user, by what the protocol calls elicitation.
type asker struct{ c *client }

func (a asker) Name() string { return "MCP client" }

// answers are what may be chosen.
var answers = json.RawMessage(`{"type":"object","required":["answer"],"properties":{"answer":{"type":"string","title":"Answer",` +
	`"enum":["deny","allow once","allow for this run"],"description":"what becomes of it"}}}`)

// Ask puts a question. A client that declines or dismisses it has said no.
func (a asker) Ask(ctx context.Context, q approval.Question) (approval.Decision, error) {
	res, err := a.c.session.Elicit(ctx, &mcp.ElicitParams{Message: question(q), RequestedSchema: answers})
	if err != nil {
		return approval.Decision{}, err
	}
	d := approval.Decision{By: "MCP client " + a.c.name()}
	switch res.Action {
	case "accept":
	case "decline", "cancel":
		d.Reason = "it was " + map[string]string{"decline": "declined", "cancel": "dismissed"}[res.Action]
		return d, nil
	default:
		return approval.Decision{}, errors.New("the client answers " + res.Action + ", which is no answer")
	}
	switch res.Content["answer"] {
	case "allow once":
		d.Approve = true
	case "allow for this run":
		d.Approve, d.ForRun = true, true
	}
	return d, nil
}

// question is what the user reads.
func question(q approval.Question) string {
	what := map[approval.Kind]string{approval.Command: "May this command be run in the sandbox?", approval.Tool: "May the tool " + q.Tool + " be called?",
		approval.Host: "May the sandbox connect to this host?"}[q.Kind]
	lines := []string{what, q.Text}
	if q.Cwd != "" {
		lines = append(lines, "in "+q.Cwd)
	}
	if q.Why != "" {
		lines = append(lines, "asked because: "+q.Why)
	}
	if q.Hidden {
		lines = append(lines, "Characters that cannot be seen were left out of it.")
	}
	if q.Cut {
		lines = append(lines, "It is longer than what is shown.")
	}
	if q.Again {
		lines = append(lines, "It was approved before, and has changed since.")
	}
	return strings.Join(lines, "\n")
}

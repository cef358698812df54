package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/rein-sh/rein/approval"
)

// Approval says what a run's agent may do without asking, and who is asked.
type Approval struct {
	Default string         `json:"default,omitempty" jsonschema:"what is done with a command of which no rule speaks: allow, ask or deny; allow unless set"`
	Ask     []string       `json:"ask,omitempty" jsonschema:"who is asked, all at once: terminal, webhook, socket (rein runs approve); terminal unless set"`
	Timeout Duration       `json:"timeout,omitempty" jsonschema:"how long a person has to answer, 10m unless set"`
	Grant   Duration       `json:"grant,omitempty" jsonschema:"how long an approval for the run holds, 1h unless set"`
	Webhook Webhook        `json:"webhook,omitzero" jsonschema:"the address that is asked"`
	Rules   []ApprovalRule `json:"rules,omitempty" jsonschema:"the strictest of those that speak of any part of a request counts"`
}

// Webhook is an address that is asked.
type Webhook struct {
	URL string `json:"url,omitempty" jsonschema:"https address, or http on this host"`
	Key Key    `json:"key,omitzero" jsonschema:"where the host finds the key that signs, of 16 bytes or more; one of env, file, command"`
}

// ApprovalRule is one rule.
type ApprovalRule struct {
	Name       string       `json:"name,omitempty" jsonschema:"how records call it"`
	Action     string       `json:"action" jsonschema:"allow, ask or deny"`
	Tool       string       `json:"tool,omitempty" jsonschema:"name of a tool, or * for all that run no shell command"`
	Command    string       `json:"command,omitempty" jsonschema:"the program and words that follow it; | between alternatives of a word, * for any characters"`
	Form       string       `json:"form,omitempty" jsonschema:"shell, wrapper, interpreter, redirect, assignment, expression, unresolved or unparsed"`
	Host       string       `json:"host,omitempty" jsonschema:"name or address of a host, *.NAME for all beneath it, or *: answers what a target's network asks"`
	Exact      bool         `json:"exact,omitempty" jsonschema:"of allow: the words of command and none more"`
	Unresolved bool         `json:"unresolved,omitempty" jsonschema:"of allow: also with words that are known only at execution"`
	Redirects  bool         `json:"redirects,omitempty" jsonschema:"of allow: also with redirections that write"`
	Reason     string       `json:"reason,omitempty" jsonschema:"what is told to who is asked, and to the model"`
	Examples   RuleExamples `json:"examples,omitzero" jsonschema:"checked when the configuration is read"`
}

// RuleExamples are what a rule is, and is not, about.
type RuleExamples struct {
	Match   []string `json:"match,omitempty" jsonschema:"what the rule speaks of"`
	NoMatch []string `json:"no_match,omitempty" jsonschema:"what it does not speak of"`
}

// Ways to a person, as Approval.Ask names them.
const (
	AskTerminal = "terminal"
	AskWebhook  = "webhook"
	AskSocket   = "socket"
)

// AskWays lists them.
var AskWays = []string{AskTerminal, AskWebhook, AskSocket}

// Policy makes the policy of the rules. An error is an *approval.RuleError.
func (a Approval) Policy() (*approval.Policy, error) {
	rules := make([]approval.Rule, len(a.Rules))
	for i, r := range a.Rules {
		rules[i] = approval.Rule{Name: r.Name, Action: approval.Action(r.Action), Tool: r.Tool, Command: r.Command, Form: r.Form, Host: r.Host,
			Exact: r.Exact, Unresolved: r.Unresolved, Redirects: r.Redirects, Reason: r.Reason,
			Examples: approval.Examples{Match: r.Examples.Match, NoMatch: r.Examples.NoMatch}}
	}
	return approval.NewPolicy(approval.Action(a.Default), rules...)
}

func (v *validator) approval(a Approval) {
	if _, err := a.Policy(); err != nil {
		at := "approval.default"
		e, _ := errors.AsType[*approval.RuleError](err)
		if e.Index >= 0 {
			at = fmt.Sprintf("approval.rules[%d]", e.Index)
			if e.Field != "rule" {
				at += "." + e.Field
			}
		}
		v.fault(at, "docs/approval.md says how rules are read", "%s", e.Reason)
	}
	for i, way := range a.Ask {
		v.oneOf(fmt.Sprintf("approval.ask[%d]", i), way, AskWays)
	}
	if v.set("approval.timeout") && a.Timeout == 0 || time.Duration(a.Timeout) > 24*time.Hour {
		v.fault("approval.timeout", "such as 10m, at most 24h", "a person cannot have %s", a.Timeout)
	}
	if v.set("approval.grant") && a.Grant == 0 || time.Duration(a.Grant) > 24*time.Hour {
		v.fault("approval.grant", "such as 1h, at most 24h", "an approval cannot hold for %s", a.Grant)
	}
	v.webhook(a)
}

func (v *validator) webhook(a Approval) {
	asked := slices.Contains(a.Ask, AskWebhook)
	if !v.set("approval.webhook") {
		if asked {
			v.fault("approval.ask", "write webhook: with url: and key:", "there is no webhook to ask")
		}
		return
	}
	if !asked {
		v.fault("approval.webhook", "write ask: [webhook]", "nobody asks it")
	}
	u, err := url.Parse(a.Webhook.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		v.fault("approval.webhook.url", "such as https://approvals.example.com/rein", "no https address")
	case u.User != nil:
		v.fault("approval.webhook.url", "put the key under key:", "an address must not contain a user or a password")
	case approval.CheckWebhookURL(a.Webhook.URL) != nil: // http elsewhere
		v.fault("approval.webhook.url", "write https://, or an address of this host", "a webhook that is not on this host is https")
	}
	v.key("approval.webhook.key", a.Webhook.Key, true)
}

#!/usr/bin/env bash
# test-agents.sh runs Codex, Claude Code, Gemini CLI, OpenCode and Qwen Code, as npm
# has them now, in rein wrap on both runtimes, with rein's scripted model as their
# vendor: a task, a budget of three first exchanges, what can be provoked, and the key
# boundary (rein lab a6 --agent). It prints the table. Installing them needs npm's registry.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh runc:runc node:nodejs npm:npm git:git
go test ./internal/agents -run TestAgents -count=1 -timeout=60m -v -args -all | sed -u -n 's/^ *\(agents\|failures\|lab\)_test.go:[0-9]*: //p; /^ *---/p; /^ok/p; /^FAIL/p'

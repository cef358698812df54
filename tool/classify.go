package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// Op is what was being done when something failed.
type Op string

// The operations.
const (
	OpArguments Op = "arguments" // checking a call, before anything is done
	OpCreate    Op = "create"
	OpRun       Op = "run"
	OpWait      Op = "wait"
	OpRead      Op = "read"
	OpWrite     Op = "write"
	OpKill      Op = "kill"
	OpModel     Op = "model" // a request to a model; its codes are model.Kinds
)

// Codes of failures: stable names, for models, reports and tests.
const (
	CodeInvalidJSON      = "invalid_json"
	CodeInvalidArguments = "invalid_arguments"
	CodeUnknownTool      = "unknown_tool"
	CodeUnknownSandbox   = "unknown_sandbox"
	CodeSandboxLimit     = "sandbox_limit"
	CodeSessionLimit     = "session_limit"
	CodeSessionGone      = "session_gone"
	CodeSandboxGone      = "sandbox_gone"
	CodeSandboxLost      = "sandbox_lost"
	CodePathDenied       = "path_denied"
	CodeSecretPath       = "secret_path"
	CodeNotFound         = "not_found"
	CodeFileNotFound     = "file_not_found"
	CodeNotRegular       = "not_regular"
	CodeBinaryFile       = "binary_file"
	CodeTooLarge         = "too_large"
	CodeHashMismatch     = "hash_mismatch"
	CodeConflict         = "conflict"
	CodeInvalid          = "invalid"
	CodeNotExecutable    = "not_executable"
	CodeCommandNotFound  = "command_not_found"
	CodeOutOfMemory      = "out_of_memory"
	CodeTimeout          = "timeout"
	CodeTimeoutTooLong   = "timeout_too_long"
	CodeExpiring         = "sandbox_expiring"
	CodeInterrupted      = "interrupted"
	CodeOutcomeUnknown   = "outcome_unknown"
	CodeNetworkDenied    = "network_denied"
	CodeDenied           = "denied"
	CodeUnavailable      = "unavailable"
	CodeUnsupported      = "unsupported"
	CodeHost             = "host"
	CodeBudget           = "budget"
	CodeInternal         = "internal"
	CodeNotExecuted      = "not_executed"    // the loop did not make the call
	CodeNotAccepted      = "not_accepted"    // the checks failed, and the work may go on
	CodeFunctionFailed   = "function_failed" // of a tool of the host program
)

// always holds the codes whose class does not depend on the operation.
var always = map[string]Class{
	CodeInvalidJSON:      Fixable,
	CodeInvalidArguments: Fixable,
	CodeUnknownTool:      Fixable,
	CodeUnknownSandbox:   Fixable,
	CodeSandboxLimit:     Fixable,
	CodeSessionLimit:     Fixable,
	CodeSessionGone:      Fixable,
	CodeSandboxGone:      Fatal,
	CodeSandboxLost:      Fatal,
	CodePathDenied:       Fixable,
	CodeSecretPath:       Fixable,
	CodeFileNotFound:     Fixable,
	CodeNotRegular:       Fixable,
	CodeBinaryFile:       Fixable,
	CodeTooLarge:         Fixable,
	CodeHashMismatch:     Fixable,
	CodeNotExecutable:    Fixable,
	CodeCommandNotFound:  Fixable,
	CodeOutOfMemory:      Fixable,
	CodeTimeoutTooLong:   Fixable,
	CodeExpiring:         Fixable,
	CodeTimeout:          Verify,
	CodeOutcomeUnknown:   Verify,
	CodeNetworkDenied:    NeedsHuman,
	CodeHost:             Fatal,
	CodeBudget:           Fatal,
	CodeNotAccepted:      Fixable,
}

// byOp holds the codes that mean different things to different operations.
var byOp = map[Op]map[string]Class{
	OpCreate: {CodeInvalid: Fatal, CodeUnsupported: Fatal, CodeDenied: NeedsHuman, CodeUnavailable: Retryable, CodeConflict: Retryable, CodeNotFound: Fatal},
	OpRun:    {CodeInvalid: Fixable, CodeNotFound: Fixable, CodeDenied: NeedsHuman, CodeConflict: Fixable, CodeUnsupported: Fatal, CodeUnavailable: Verify},
	OpWait:   {CodeInvalid: Fixable, CodeNotFound: Fixable, CodeUnavailable: Retryable, CodeUnsupported: Fatal},
	OpRead:   {CodeInvalid: Fixable, CodeNotFound: Fixable, CodeDenied: Fixable, CodeConflict: Fixable, CodeUnavailable: Retryable, CodeUnsupported: Fatal},
	OpWrite:  {CodeInvalid: Fixable, CodeNotFound: Fixable, CodeDenied: Fixable, CodeConflict: Fixable, CodeUnavailable: Verify, CodeUnsupported: Fatal},
	OpKill:   {CodeUnavailable: Retryable},
	OpModel: { // a request changes nothing: one that was cut or timed out may be repeated
		"rate_limit": Retryable, "overloaded": Retryable, CodeUnavailable: Retryable, CodeTimeout: Retryable, "cut": Retryable,
		"context": Fixable,
		"auth":    Fatal, CodeNotFound: Fatal, CodeInvalid: Fatal,
		"forbidden": NeedsHuman, "quota": NeedsHuman,
	},
}

// Classify is the class of a failure. What is not in the table is Unknown:
// never repeated, and reported.
func Classify(op Op, code string) Class {
	if c, ok := byOp[op][code]; ok {
		return c
	}
	if c, ok := always[code]; ok {
		return c
	}
	return Unknown
}

// Fail is the result of a call that failed with this code.
func Fail(op Op, code, message, hint string) Result {
	return Result{Err: &Error{Class: Classify(op, code), Code: code, Message: message, Hint: hint}}
}

var codes = map[sandbox.Kind]string{
	sandbox.KindInvalid:     CodeInvalid,
	sandbox.KindUnsupported: CodeUnsupported,
	sandbox.KindNotFound:    CodeNotFound,
	sandbox.KindConflict:    CodeConflict,
	sandbox.KindDenied:      CodeDenied,
	sandbox.KindTooLarge:    CodeTooLarge,
	sandbox.KindUnavailable: CodeUnavailable,
	sandbox.KindLost:        CodeSandboxLost,
	sandbox.KindTimeout:     CodeOutcomeUnknown,
	sandbox.KindHost:        CodeHost,
	sandbox.KindInternal:    CodeInternal,
}

// maxMessage bounds the text of an error in a result, in bytes.
const maxMessage = 500

// Explain is what an error of the sandbox is to a model. sandboxID tells a
// sandbox that is gone from a file that is not there.
func Explain(op Op, sandboxID string, err error) *Error {
	if b, ok := errors.AsType[*budget.Breach](err); ok {
		return &Error{Class: Classify(op, CodeBudget), Code: CodeBudget, Message: b.Error(), Hint: b.Hint()}
	}
	kind := sandbox.KindOf(err)
	code, ok := codes[kind]
	if !ok {
		code = CodeInternal
	}
	e, _ := errors.AsType[*sandbox.Error](err)
	switch {
	case kind == sandbox.KindNotFound && e.Subject == sandboxID:
		code = CodeSandboxGone
	case kind == sandbox.KindNotFound && (op == OpRead || op == OpWrite):
		code = CodeFileNotFound
	case kind == sandbox.KindDenied && (op == OpRead || op == OpWrite):
		code = CodePathDenied
	case kind == sandbox.KindConflict && op == OpWrite:
		code = CodeHashMismatch
	case kind == sandbox.KindInvalid && op == OpRead:
		code = CodeNotRegular
	case errors.Is(err, context.Canceled):
		code = CodeInterrupted
	}
	return &Error{Class: Classify(op, code), Code: code, Message: evidence.Cut(err.Error(), maxMessage), Hint: hintFor(op, code, err)}
}

func hintFor(op Op, code string, err error) string {
	if h := sandbox.HintOf(err); h != "" {
		return h
	}
	switch code {
	case CodeSandboxGone, CodeSandboxLost:
		return "nothing can be done in it any more; give your final answer"
	case CodeFileNotFound:
		return "list the directory with run_command to see what is there"
	case CodeHashMismatch:
		return "the file is not what you expected: read it again, then decide"
	case CodeNotRegular:
		return "only regular files can be read; use run_command for directories"
	case CodeOutcomeUnknown:
		return "check what it did before you repeat anything"
	case CodeNotFound:
		if op == OpWait {
			return "wait takes the id that run_command returned with background"
		}
		return "if the sandbox has no shell, no command can run in it: work with files only, or say so in your answer; else check the working directory"
	case CodeInvalid:
		if op == OpRun {
			return "check the working directory and the command"
		}
	}
	return ""
}

// endings say who ended a command that did not end by itself.
var endings = map[string]string{
	execd.KilledByInterrupt: "it was interrupted from outside, by a person or because the run had to end",
	execd.KilledByShutdown:  "the sandbox was shut down under it",
	execd.KilledByPause:     "it was ended because the sandbox was paused and it would not stand still",
}

// exitError says what is special about how a command ended, if anything is: a
// plain non-zero exit code speaks for itself.
func exitError(r sandbox.Result) *Error {
	fail := func(code, message, hint string) *Error {
		return &Error{Class: Classify(OpRun, code), Code: code, Message: message, Hint: hint}
	}
	switch {
	case r.TimedOut():
		return fail(CodeTimeout, fmt.Sprintf("it was still running after %d ms; it and everything it had started were killed", r.DurationMS),
			"it may have done a part of its work: check that before you repeat anything; run long work with background")
	case r.OOMKilled:
		return fail(CodeOutOfMemory, "it used more memory than the sandbox has", "process the data in smaller pieces")
	case r.KilledBy != "":
		return fail(CodeInterrupted, cmp.Or(endings[r.KilledBy], "it was ended by "+r.KilledBy), "it may have done a part of its work: check that before you repeat anything")
	case r.ExitCode == nil:
		return nil
	}
	if n := denied(r.Network, r.CallID); n != nil && *r.ExitCode != 0 {
		return fail(CodeNetworkDenied, fmt.Sprintf("it failed, and it tried to reach %s, which was refused: %s", targetOf(n), refusedBecause(n)),
			"the host's policy keeps that closed, and nothing in the sandbox can open it; work without it, or say in your answer what you would need. "+
				"Whether a run stops here or goes on is the host's choice, --on-denial, which opens nothing")
	}
	switch *r.ExitCode {
	case 126:
		return fail(CodeNotExecutable, "exit code 126: found, but it cannot be executed", "check its permissions and its first line")
	case 127:
		return fail(CodeCommandNotFound, "exit code 127: command not found", "check the spelling, and what is installed, with command -v")
	}
	return nil
}

// denied is the first attempt of a call's that was refused; nil: none was.
func denied(records []sandbox.NetworkRecord, callID string) *sandbox.NetworkRecord {
	for i, n := range records {
		if n.Verdict == "deny" && n.Of(callID) {
			return &records[i]
		}
	}
	return nil
}

func targetOf(n *sandbox.NetworkRecord) string {
	target := cmp.Or(n.Name, n.Address)
	if n.Port != 0 && (n.Proto != "dns" || n.Name == "") { // else that of who was asked for the name
		target = fmt.Sprintf("%s port %d", target, n.Port)
	}
	return target
}

// Opens is what of the network the host would have to open for what the call was
// refused, as --allow takes it: HOST, HOST:PORT or HOST:PORT/PROTO. It is for
// people, never for a model, and empty where nothing, or nothing that should be,
// would open it.
func (r Result) Opens() string {
	n := denied(r.Network, r.CallID)
	if n == nil || n.Proto == "udp" || n.Proto == "icmp" || n.Proto == "other" {
		return ""
	}
	host := cmp.Or(n.Name, n.Address)
	switch {
	case policy.Openable(n.Rule): // by a second rule, besides one for the name
		host = n.Address
	case n.Rule != "" && n.Rule != policy.RuleDefault: // a rule that denies wins, and what is no rule cannot be opened
		return ""
	}
	switch {
	case n.Proto == "dns" && n.Name == "" || host == "" || len(policy.Encoded(n.Name)) > 0:
		return ""
	case n.Proto == "dns" || n.Port == 0:
		return host
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	switch target := fmt.Sprintf("%s:%d", host, n.Port); n.Port {
	case 80, 443:
		return target
	default:
		return target + "/tcp"
	}
}

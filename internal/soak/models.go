package soak

import "strings"

// summary reports whether results were to be summed up, beside the conversation.
func (s Seen) summary() bool {
	return strings.HasPrefix(s.Request.System, "You keep the notes of an agent")
}

// models wants the second model asked only after the first could not be had, by
// each process, and the first no more after that.
func (j *judge) models() {
	fell := false
	for i, s := range j.seen {
		if s.By == second && !fell {
			fell = true
			before := j.seen[max(0, i-1)]
			j.check(i > 0 && (!j.heard(before) || before.Reply.Stop == ""), "request %d is the second model's, and the first had answered", i)
		}
		j.check(s.By == second || !fell || j.Crashed, "request %d is the first model's again", i)
	}
	j.check(!fell || j.Plan.Fallback, "a second model was asked, and there is none")
}

// Came is what came up in a run, besides how it ended and what was called.
func (x *Played) Came() []string {
	came := map[string]bool{}
	for _, s := range x.Model.requests() {
		came[s.By] = true
		if s.summary() {
			came["summary"] = true
		}
	}
	if a := x.Report.Approvals; a != nil {
		for _, i := range a.List {
			came[i.Code] = true
		}
	}
	var list []string
	for what := range came {
		list = append(list, what)
	}
	return list
}

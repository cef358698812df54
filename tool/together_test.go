package tool_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/tool"
)

// Calls of all tools at the same time have each its own result, while a limit is
// changed beside them.
func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	fn, err := tool.Func("twice", "Says it twice.", func(_ context.Context, in struct {
		Word string `json:"word"`
	}) (string, error) {
		return in.Word + in.Word, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := tool.Program{Name: "say", Description: "Says it.", Argv: []string{"echo", "{{word}}"},
		Parameters: []tool.Parameter{{Name: "word", Type: "string", Required: true}}}.Tool()
	if err != nil {
		t.Fatal(err)
	}
	var o *tool.Options
	b := newBench(t, func(opt *tool.Options, _ *budget.Limits) {
		o = opt
		opt.Search, opt.Custom = true, []tool.Custom{fn, narrow}
	})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			word := fmt.Sprintf("word-%d", i)
			want := func(what string, r tool.Result, stdout string) {
				if !r.OK || r.Stdout != stdout {
					t.Errorf("%s %d: %q, %+v", what, i, r.Stdout, r.Err)
				}
			}
			want("write", b.call(tool.WriteFile, "path", word, "content", word+"\n"), "wrote 7 bytes to "+b.box.Info().Cwd+"/"+word+"\n")
			want("command", b.call(tool.RunCommand, "command", "cat "+word), word+"\n")
			want("read", b.call(tool.ReadFile, "path", word), word+"\n")
			want("search", b.call(tool.Search, "path", word, "pattern", "word"), "1:"+word+"\n")
			want("function", b.call("twice", "word", word), word+word)
			want("narrow", b.call("say", "word", word), word+"\n")
			if r := b.call(tool.RunCommand, "command", "seq 900"); !r.OK || !strings.HasSuffix(r.Stdout, "900\n") || strings.Count(r.Stdout, "\n") > 400 {
				t.Errorf("%d lines, %v", strings.Count(r.Stdout, "\n"), r.Err)
			}
		})
	}
	all.Go(func() {
		for i := range 50 {
			if _, err := o.Budget.SetLimit(budget.LimitOutputLines, int64(100+i)); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
}

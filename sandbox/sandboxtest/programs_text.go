package sandboxtest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func cat(p *process) int {
	p.flags("")
	return p.inputs(func(_ string, r io.Reader) error {
		_, err := io.Copy(p.stdout, r)
		return err
	})
}

func yes(p *process) int {
	text := "y"
	if len(p.args) > 0 {
		text = strings.Join(p.args, " ")
	}
	block := bytes.Repeat([]byte(text+"\n"), max(1, 8192/(len(text)+1)))
	for p.ctx.Err() == nil {
		if _, err := p.stdout.Write(block); err != nil {
			return 1
		}
	}
	return 1
}

func seq(p *process) int {
	nums := make([]int, len(p.args))
	for i, a := range p.args {
		n, err := strconv.Atoi(a)
		if err != nil {
			return p.fail(1, "invalid argument: %q", a)
		}
		nums[i] = n
	}
	first, step, last := 1, 1, 0
	switch len(nums) {
	case 1:
		last = nums[0]
	case 2:
		first, last = nums[0], nums[1]
	case 3:
		first, step, last = nums[0], nums[1], nums[2]
	default:
		return p.fail(1, "needs one to three numbers")
	}
	if step == 0 {
		return p.fail(1, "the step must not be zero")
	}
	w := bufio.NewWriterSize(p.stdout, 1<<16)
	for n := first; (n-last)*step <= 0 && p.ctx.Err() == nil; n += step {
		w.WriteString(strconv.Itoa(n))
		if w.WriteByte('\n') != nil {
			return 1
		}
	}
	if w.Flush() != nil {
		return 1
	}
	return 0
}

// part is what head -n, head -c, tail -n or tail -c selects.
type part struct {
	count int
	bytes bool
	from  bool // +N: from the Nth on
}

func parsePart(p *process) (part, error) {
	if len(p.args) > 0 && len(p.args[0]) > 1 && p.args[0][0] == '-' && p.args[0][1] >= '0' && p.args[0][1] <= '9' {
		p.args[0] = "-n" + p.args[0][1:] // head -5
	}
	flags := p.flags("nc")
	want := part{count: 10}
	value, ok := flags['n']
	if v, isBytes := flags['c']; isBytes {
		value, ok, want.bytes = v, true, true
	}
	if !ok {
		return want, nil
	}
	value, want.from = strings.CutPrefix(value, "+")
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return want, fmt.Errorf("invalid number %q", value)
	}
	want.count = n
	return want, nil
}

func head(p *process) int {
	want, err := parsePart(p)
	if err != nil {
		return p.fail(1, "%v", err)
	}
	return p.inputs(func(_ string, r io.Reader) error {
		if want.bytes {
			_, err := io.CopyN(p.stdout, r, int64(want.count))
			if err == io.EOF {
				err = nil
			}
			return err
		}
		br := bufio.NewReader(r)
		for range want.count {
			line, err := br.ReadBytes('\n')
			if _, werr := p.stdout.Write(line); werr != nil || err == io.EOF {
				return werr
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func tail(p *process) int {
	want, err := parsePart(p)
	if err != nil {
		return p.fail(1, "%v", err)
	}
	return p.inputs(func(_ string, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		pieces := slices.Collect(bytes.Lines(data))
		if want.bytes {
			pieces = nil
			for i := range data {
				pieces = append(pieces, data[i:i+1])
			}
		}
		start := len(pieces) - want.count
		if want.from {
			start = want.count - 1
		}
		_, err = p.stdout.Write(bytes.Join(pieces[min(max(start, 0), len(pieces)):], nil))
		return err
	})
}

func wc(p *process) int {
	flags := p.flags("")
	show := func(c byte) bool { _, ok := flags[c]; return ok || len(flags) == 0 }
	return p.inputs(func(name string, r io.Reader) error {
		var lines, words, size int
		inWord := false
		br := bufio.NewReader(r)
		for {
			c, err := br.ReadByte()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			size++
			if c == '\n' {
				lines++
			}
			space := c == ' ' || c >= '\t' && c <= '\r'
			if !space && !inWord {
				words++
			}
			inWord = !space
		}
		var out []string
		for _, col := range []struct {
			flag  byte
			count int
		}{{'l', lines}, {'w', words}, {'c', size}} {
			if show(col.flag) {
				out = append(out, strconv.Itoa(col.count))
			}
		}
		if name != "" {
			out = append(out, name)
		}
		_, err := fmt.Fprintln(p.stdout, strings.Join(out, " "))
		return err
	})
}

// grep knows -c -F -i -n -q -v; patterns are Go's.
func grep(p *process) int {
	flags := p.flags("e")
	has := func(c byte) bool { _, ok := flags[c]; return ok }
	pattern, ok := flags['e']
	if !ok {
		if len(p.args) == 0 {
			return p.fail(2, "needs a pattern")
		}
		pattern, p.args = p.args[0], p.args[1:]
	}
	if has('F') {
		pattern = regexp.QuoteMeta(pattern)
	}
	if has('i') {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return p.fail(2, "%v", err)
	}
	many, total := len(p.args) > 1, 0
	code := p.inputs(func(name string, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		count, number := 0, 0
		for line := range bytes.Lines(data) {
			number++
			if re.Match(bytes.TrimSuffix(line, []byte("\n"))) == has('v') {
				continue
			}
			count++
			if has('q') || has('c') {
				continue
			}
			prefix := ""
			if many {
				prefix = name + ":"
			}
			if has('n') {
				prefix += strconv.Itoa(number) + ":"
			}
			fmt.Fprintf(p.stdout, "%s%s\n", prefix, bytes.TrimSuffix(line, []byte("\n")))
		}
		total += count
		if has('c') {
			fmt.Fprintln(p.stdout, count)
		}
		return nil
	})
	if code != 0 {
		return 2
	}
	if total == 0 {
		return 1
	}
	return 0
}

func sortLines(p *process) int {
	flags := p.flags("")
	var lines []string
	code := p.inputs(func(_ string, r io.Reader) error {
		data, err := io.ReadAll(r)
		for line := range strings.Lines(string(data)) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		return err
	})
	slices.Sort(lines)
	if _, ok := flags['u']; ok {
		lines = slices.Compact(lines)
	}
	if _, ok := flags['r']; ok {
		slices.Reverse(lines)
	}
	for _, line := range lines {
		fmt.Fprintln(p.stdout, line)
	}
	return code
}

func sha256sum(p *process) int {
	return p.inputs(func(name string, r io.Reader) error {
		h := sha256.New()
		if _, err := io.Copy(h, r); err != nil {
			return err
		}
		if name == "" {
			name = "-"
		}
		_, err := fmt.Fprintf(p.stdout, "%s  %s\n", hex.EncodeToString(h.Sum(nil)), name)
		return err
	})
}

func tee(p *process) int {
	flags := p.flags("")
	how := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if _, ok := flags['a']; ok {
		how = os.O_WRONLY | os.O_CREATE | os.O_APPEND
	}
	outs := []io.Writer{p.stdout}
	var files []*os.File
	code := 0
	for _, name := range p.args {
		f, err := p.shell.files.open(p.path(name), how, 0o644)
		if err != nil {
			code = p.complain(name, err)
			continue
		}
		files = append(files, f)
		outs = append(outs, f)
	}
	_, err := io.Copy(io.MultiWriter(outs...), p.stdin)
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		code = p.complain("write", err)
	}
	return code
}

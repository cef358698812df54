"""Programs of ten languages that log a lot and then fail; each tells its failure
to a file as well."""

import json
import random

from corpus import Skip, first_line, names, need, run, write

# Every program reads what to log and at which line to fail, and goes on
# logging from elsewhere afterwards where the language lets it.
PROGRAMS = {
    "python3": ("main.py", """import json, sys, traceback
def settle(n): return {}["ledger %d" % n]
def close(n): return settle(n + 1)
lines = open("lines.txt").read().splitlines()
for i, l in enumerate(lines):
    print(l, flush=True)
    if i == AT:
        try:
            close(i)
        except KeyError as e:
            json.dump([type(e).__name__ + ": " + str(e)], open("out.json", "w"))
            traceback.print_exc()
sys.exit(1)
""", "python3 main.py"),
    "node": ("main.js", """const fs = require('fs');
const lines = fs.readFileSync('lines.txt', 'utf8').trim().split('\\n');
function settle(o) { return o.ledger.total; }
lines.forEach((l, i) => {
  console.log(l);
  if (i === AT) try { settle({}); } catch (e) { fs.writeFileSync('out.json', JSON.stringify([e.name + ': ' + e.message])); console.log(e.stack); }
});
process.exit(1);
""", "node main.js"),
    "java": ("Main.java", """import java.nio.file.*;
public class Main {
  static void settle(int n) { throw new IllegalStateException("ledger " + n + " is closed"); }
  static void close(int n) { try { settle(n); } catch (IllegalStateException e) { throw new RuntimeException("cannot close period " + n, e); } }
  public static void main(String[] a) throws Exception {
    int i = 0;
    for (String l : Files.readAllLines(Path.of("lines.txt"))) {
      System.out.println(l); System.out.flush();
      if (i++ == AT) try { close(i); } catch (RuntimeException e) {
        Files.writeString(Path.of("out.json"), "[\\"" + e + "\\", \\"Caused by: " + e.getCause() + "\\"]");
        e.printStackTrace();
      }
    }
    System.exit(1);
  }
}
""", "java Main.java"),
    "go": ("main.go", """package main
import ("bufio"; "encoding/json"; "fmt"; "os"; "runtime/debug")
func settle(m map[string]int, n int) { m["ledger"] = n }
func close(n int) {
	defer func() {
		if r := recover(); r != nil {
			b, _ := json.Marshal([]string{fmt.Sprint("panic: ", r)})
			os.WriteFile("out.json", b, 0o644)
			fmt.Printf("panic: %v\\n\\n%s", r, debug.Stack())
		}
	}()
	settle(nil, n)
}
func main() {
	f, _ := os.Open("lines.txt")
	s := bufio.NewScanner(f)
	for i := 0; s.Scan(); i++ {
		fmt.Println(s.Text())
		if i == AT { close(i) }
	}
	os.Exit(1)
}
""", "go run main.go"),
    "rust": ("main.rs", """use std::io::Write;
fn settle(n: usize) -> u32 { let v: Vec<u32> = vec![1, 2, 3]; v[n] }
fn main() {
    std::panic::set_hook(Box::new(|p| {
        let text = p.payload().downcast_ref::<String>().cloned().unwrap_or_default();
        std::fs::File::create("out.json").unwrap().write_all(format!("[{:?}]", text).as_bytes()).unwrap();
        println!("thread 'main' panicked at {}:\\n{}", p.location().unwrap(), text);
    }));
    let text = std::fs::read_to_string("lines.txt").unwrap();
    for (i, l) in text.lines().enumerate() {
        println!("{}", l);
        if i == AT { let _ = std::panic::catch_unwind(|| settle(i)); }
    }
    std::process::exit(1);
}
""", "rustc -O main.rs && ./main"),
    "ruby": ("main.rb", """require 'json'
def settle(n) = Integer("ledger #{n}")
$stdout.sync = true
File.readlines('lines.txt').each_with_index do |l, i|
  puts l
  next unless i == AT
  begin
    settle(i)
  rescue => e
    File.write('out.json', JSON.dump([e.message]))
    puts e.full_message(highlight: false)
  end
end
exit 1
""", "ruby main.rb"),
    "php": ("main.php", """<?php
function settle(?array $ledger): int { return count($ledger['entries']); }
foreach (file('lines.txt') as $i => $l) {
  echo $l;
  if ($i === AT) try { settle([]); } catch (Throwable $e) {
    file_put_contents('out.json', json_encode([get_class($e) . ': ' . $e->getMessage()]));
    echo "PHP Fatal error:  Uncaught $e\\n";
  }
}
exit(1);
""", "php -d display_errors=0 main.php"),
    "perl": ("main.pl", """use strict; use warnings; use JSON; $| = 1;
sub settle { my $n = shift; die "ledger $n has no owner" }
open my $f, '<', 'lines.txt' or die; my $i = 0;
while (<$f>) {
  print;
  next unless $i++ == AT;
  eval { settle($i) };
  my ($first) = split /\\n/, $@;
  open my $o, '>', 'out.json'; print $o encode_json([$first]); close $o;
  print $@;
}
exit 1;
""", "perl main.pl"),
    "lua": ("main.lua", """local function settle(t) return t.ledger.total end
local i = 0
for l in io.lines('lines.txt') do
  print(l)
  if i == AT then
    local ok, e = xpcall(settle, debug.traceback, {})
    local f = io.open('out.json', 'w') f:write('["' .. e:match('^[^\\n]*'):gsub('"', '\\\\"') .. '"]') f:close()
    print('lua: ' .. e)
  end
  i = i + 1
end
os.exit(1)
""", "lua5.4 main.lua"),
    "c++": ("main.cpp", """#include <fstream>
#include <iostream>
#include <string>
int *settle(int n) { int *p = new int[4]; delete[] p; return p + n % 4; }
int main() {
  std::ifstream f("lines.txt"); std::string l;
  for (int i = 0; std::getline(f, l); i++) {
    std::cout << l << std::endl;
    if (i == AT) { volatile int v = *settle(i); (void)v; }
  }
  return 1;
}
""", "g++ -g -fsanitize=address -fsanitize-recover=address main.cpp -o main && ASAN_OPTIONS=halt_on_error=0:log_path=stdout ./main"),
    "swipl": ("main.pl", """settle(X, Y) :- Y is X + ledger.
finish(N) :- catch(settle(N, _), E, (note(E), print_message(error, E))).
note(error(type_error(_, V), _)) :- open('out.json', write, F), format(F, '["~w"]', [V]), close(F).
go(At) :- open('lines.txt', read, F), repeat, read_line_to_string(F, L), ( L == end_of_file -> ! ; line_count(F, N), format("~w~n", [L]), flush_output, ( N =:= At -> finish(N) ; true ), fail ).
""", "swipl -q -g 'go(AT)' -t 'halt(1)' main.pl < /dev/null"),
    "sbcl": ("main.lisp", """(defun settle (n) (gethash :total (car (list n))))
(with-open-file (f "lines.txt")
  (loop for l = (read-line f nil) for i from 0 while l do
    (format t "~a~%" l)
    (finish-output)
    (when (= i AT)
      (handler-case (settle i)
        (error (e)
          (with-open-file (o "out.json" :direction :output :if-exists :supersede)
            (format o "[\\"~a\\"]" (type-of e)))
          (format t "debugger invoked on a ~a in thread main:~%  ~a~%" (type-of e) e))))))
(sb-ext:exit :code 1)
""", "sbcl --noinform --non-interactive --load main.lisp"),
    "guile": ("main.scm", """(use-modules (ice-9 rdelim))
(define (settle n) (vector-ref (vector 1 2 3) n))
(call-with-input-file "lines.txt"
  (lambda (f)
    (let loop ((l (read-line f)) (i 0))
      (unless (eof-object? l)
        (display l) (newline)
        (when (= i AT)
          (catch #t (lambda () (settle i))
            (lambda (key . args)
              (call-with-output-file "out.json" (lambda (o) (format o "[\\"In procedure ~a: \\"]" (car args))))
              (print-exception (current-output-port) #f key args))))
        (loop (read-line f) (+ i 1))))))
(exit 1)
""", "guile --no-auto-compile main.scm"),
    "erl": ("main.escript", """#!/usr/bin/env escript
main(_) ->
  {ok, B} = file:read_file("lines.txt"),
  lists:foldl(fun(L, I) ->
    io:format("~s~n", [L]),
    case I of AT -> close(I); _ -> ok end, I + 1 end, 0, string:split(string:trim(B), "\\n", all)),
  halt(1).
close(N) ->
  try settle(N) catch C:E:S ->
    file:write_file("out.json", io_lib:format("[\\"~w\\"]", [E])),
    io:format("~s~n", [erl_error:format_exception(C, E, S)])
  end.
settle(N) when N < 0 -> N.
""", "escript main.escript"),
}

HELD = {"swipl", "sbcl", "guile", "erl"}


def noise(rng, n):
    out = []
    for i in range(n):
        out.append(rng.choice([
            "2026-11-29 17:{m:02}:{s:02},{i:03} INFO  [worker-{w}] request {i} done, status=200 errors=0 took {s} ms",
            "2026-11-29 17:{m:02}:{s:02},{i:03} DEBUG [worker-{w}] error budget of tenant {i} is at {s} %",
            "2026-11-29 17:{m:02}:{s:02},{i:03} WARN  [pool-{w}] connection {i} was reset, retrying",
            "10.0.{w}.{s} - - \"GET /v1/exceptions/{i} HTTP/1.1\" 200 {i}",
        ]).format(m=i // 60 % 60, s=i % 60, i=i, w=rng.randrange(8)))
    return out


def traces(corpus):
    for n, (tool, (file, text, cmd)) in enumerate(PROGRAMS.items()):
        try:
            need({"java": "javac", "rust": "rustc", "c++": "g++", "lua": "lua5.4"}.get(tool, tool))
        except Skip as missing:
            print(f"trace-{tool}: skipped, there is no {missing}")
            continue
        name = "trace-" + tool.replace("+", "x")
        d = corpus.dir(name)
        at = [300, 1300, 700][n % 3]
        write(d, {file: text.replace("AT", str(at)), "lines.txt": "\n".join(noise(random.Random(400 + n), 1700)) + "\n"})
        log = run(cmd.replace("AT", str(at)), d)
        if tool == "c++":
            # The sanitizer's own summary says what its report is about.
            summary = next(l for l in log.splitlines() if l.startswith(b"SUMMARY: "))
            facts = [[b"ERROR: AddressSanitizer: " + summary.split()[2]], [summary]]
            source = "the sanitizer's summary line"
        else:
            facts, source = [[first_line(f)] for f in json.load(open(d / "out.json"))], "the program's own record of the failure"
        corpus.add(name, tool, log, facts, source, tool in HELD)


ALL = [traces]

"""Programs of fourteen languages that log a lot, one part of the work after the
other in a process of its own, and one of which dies: its trace is what the
runtime prints. A second run, of that part alone, has a handler that tells the
failure to a file instead."""

import json
import random

from corpus import Skip, first_line, need, run, write

# Every program logs the lines of PART, and in the part BAD dies after AT lines;
# with RECORD it writes what it died of to out.json. The command that builds it
# may be empty.
PROGRAMS = {
    "python3": ("main.py", """import json, os, sys
def settle(n): return {}["ledger %d" % n]
def close(n): return settle(n + 1)
def record(kind, e, trace): json.dump([kind.__name__ + ": " + str(e)], open("out.json", "w"))
if "RECORD" in os.environ: sys.excepthook = record
part = os.environ["PART"]
for i, l in enumerate(open("part" + part)):
    print(l, end="", flush=True)
    if i == AT and part == "BAD": close(i)
""", "", "python3 main.py"),
    "node": ("main.js", """const fs = require('fs');
const { PART, RECORD } = process.env;
if (RECORD) process.on('uncaughtException', (e) => fs.writeFileSync('out.json', JSON.stringify([e.name + ': ' + e.message])));
function settle(o) { return o.ledger.total; }
fs.readFileSync('part' + PART, 'utf8').trim().split('\\n').forEach((l, i) => {
  fs.writeSync(1, l + '\\n');
  if (i === AT && PART === 'BAD') settle({});
});
""", "", "node main.js"),
    "java": ("Main.java", """import java.nio.file.*;
public class Main {
  static void settle(int n) { throw new IllegalStateException("ledger " + n + " is closed"); }
  static void close(int n) { try { settle(n); } catch (IllegalStateException e) { throw new RuntimeException("cannot close period " + n, e); } }
  static void record(Throwable e) {
    try { Files.writeString(Path.of("out.json"), "[\\"" + e + "\\", \\"Caused by: " + e.getCause() + "\\"]"); } catch (java.io.IOException x) { System.exit(3); }
  }
  public static void main(String[] a) throws Exception {
    String part = System.getenv("PART");
    if (System.getenv("RECORD") != null) Thread.setDefaultUncaughtExceptionHandler((t, e) -> record(e));
    int i = 0;
    for (String l : Files.readAllLines(Path.of("part" + part))) {
      System.out.println(l);
      System.out.flush();
      if (i++ == AT && part.equals("BAD")) close(i);
    }
  }
}
""", "javac -g Main.java", "java Main"),
    "go": ("main.go", """package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

func settle(m map[string]int, n int) { m["ledger"] = n }

func record() {
	if r := recover(); r != nil {
		b, _ := json.Marshal([]string{fmt.Sprint("panic: ", r)})
		os.WriteFile("out.json", b, 0o644)
	}
}

func main() {
	part := os.Getenv("PART")
	if os.Getenv("RECORD") != "" {
		defer record()
	}
	f, _ := os.Open("part" + part)
	s := bufio.NewScanner(f)
	for i := 0; s.Scan(); i++ {
		fmt.Println(s.Text())
		if i == AT && part == "BAD" {
			settle(nil, i)
		}
	}
}
""", "go build -o main main.go", "./main"),
    "rust": ("main.rs", """use std::{env, fs};
fn settle(n: usize) -> u32 { let v: Vec<u32> = vec![1, 2, 3]; v[n] }
fn main() {
    let part = env::var("PART").unwrap();
    if env::var("RECORD").is_ok() {
        std::panic::set_hook(Box::new(|p| {
            let text = p.payload().downcast_ref::<String>().cloned().unwrap_or_default();
            fs::write("out.json", format!("[{:?}]", text)).unwrap();
        }));
    }
    for (i, l) in fs::read_to_string(format!("part{}", part)).unwrap().lines().enumerate() {
        println!("{}", l);
        if i == AT && part == "BAD" { println!("{}", settle(i)); }
    }
}
""", "rustc -g main.rs", "RUST_BACKTRACE=1 ./main"),
    "ruby": ("main.rb", """require 'json'
def settle(n) = Integer("ledger #{n}")
$stdout.sync = true
at_exit { File.write('out.json', JSON.dump([$!.message])) if $! && ENV['RECORD'] }
File.readlines("part#{ENV['PART']}").each_with_index do |l, i|
  puts l
  settle(i) if i == AT && ENV['PART'] == 'BAD'
end
""", "", "ruby main.rb"),
    "php": ("main.php", """<?php
function settle(?array $ledger): int { return count($ledger['entries']); }
if (getenv('RECORD')) set_exception_handler(fn ($e) => file_put_contents('out.json', json_encode([get_class($e) . ': ' . $e->getMessage()])));
foreach (file('part' . getenv('PART')) as $i => $l) {
  echo $l;
  if ($i === AT && getenv('PART') === 'BAD') settle([]);
}
""", "", "php -d display_errors=0 -d log_errors=1 -d error_log= main.php"),
    "perl": ("main.pl", """use strict; use warnings; use JSON; use Carp; $| = 1;
sub settle { my $n = shift; confess "ledger $n has no owner" }
$SIG{__DIE__} = sub { my ($first) = split /\\n/, $_[0]; open my $o, '>', 'out.json'; print $o encode_json([$first]) } if $ENV{RECORD};
open my $f, '<', "part$ENV{PART}" or die; my $i = 0;
while (my $l = <$f>) {
  print $l;
  settle($i) if $i++ == AT && $ENV{PART} eq 'BAD';
}
""", "", "perl main.pl"),
    "lua": ("main.lua", """local function settle(t) return t.ledger.total end
local part, i = os.getenv('PART'), 0
local function record(e)
  local f = io.open('out.json', 'w') f:write('["' .. e:gsub('"', '\\\\"') .. '"]') f:close()
end
local function work()
  for l in io.lines('part' .. part) do
    io.write(l, '\\n') io.flush()
    if i == AT and part == 'BAD' then settle({}) end
    i = i + 1
  end
end
if os.getenv('RECORD') then xpcall(work, record) else work() end
""", "", "lua5.4 main.lua"),
    "c++": ("main.cpp", """#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
int *settle(int n) { int *p = new int[4]; delete[] p; return p + n % 4; }
int main() {
  std::string part = getenv("PART"), l;
  std::ifstream f("part" + part);
  for (int i = 0; std::getline(f, l); i++) {
    std::cout << l << std::endl;
    if (i == AT && part == "BAD") { volatile int v = *settle(i); (void)v; }
  }
}
""", "g++ -g -fsanitize=address main.cpp -o main", "./main"),
    "swipl": ("main.pl", """settle(X, Y) :- Y is X + ledger.
record(error(type_error(_, V), _)) :- open('out.json', write, F), format(F, '["~w"]', [V]), close(F).
line(AT, 'BAD') :- getenv('RECORD', _), !, catch(settle(AT, _), E, record(E)).
line(AT, 'BAD') :- !, settle(AT, _).
line(_, _).
lines(F, N, P) :- read_line_to_string(F, L), ( L == end_of_file -> true ; format("~w~n", [L]), flush_output, line(N, P), M is N + 1, lines(F, M, P) ).
go :- getenv('PART', P), atom_concat(part, P, Name), open(Name, read, F), lines(F, 0, P).
""", "", "swipl -q -g go -t halt main.pl"),
    "sbcl": ("main.lisp", """(defun settle (n) (gethash :total (car (list n))))
(defun record (e)
  (with-open-file (o "out.json" :direction :output :if-exists :supersede) (format o "[\\"~a\\"]" (type-of e)))
  (sb-ext:exit :code 1))
(let ((part (sb-ext:posix-getenv "PART")))
  (with-open-file (f (concatenate 'string "part" part))
    (loop for l = (read-line f nil) for i from 0 while l do
      (format t "~a~%" l)
      (finish-output)
      (when (and (= i AT) (string= part "BAD"))
        (if (sb-ext:posix-getenv "RECORD") (handler-case (settle i) (error (e) (record e))) (settle i))))))
""", "", "sbcl --noinform --non-interactive --load main.lisp"),
    "guile": ("main.scm", """(use-modules (ice-9 rdelim))
(define part (getenv "PART"))
(define (settle n) (vector-ref (vector 1 2 3) n))
(define (record key . args)
  (call-with-output-file "out.json" (lambda (o) (format o "[\\"In procedure ~a: \\"]" (car args)))))
(call-with-input-file (string-append "part" part)
  (lambda (f)
    (let loop ((l (read-line f)) (i 0))
      (unless (eof-object? l)
        (display l) (newline) (force-output)
        (when (and (= i AT) (string=? part "BAD"))
          (if (getenv "RECORD") (catch #t (lambda () (settle i)) record) (display (settle i))))
        (loop (read-line f) (+ i 1))))))
""", "", "guile --no-auto-compile main.scm"),
    "erl": ("main.escript", """#!/usr/bin/env escript
main(_) ->
  Part = os:getenv("PART"),
  {ok, B} = file:read_file("part" ++ Part),
  lists:foldl(fun(L, I) ->
    io:format("~s~n", [L]),
    case {I, Part, os:getenv("RECORD")} of
      {AT, "BAD", false} -> settle(I);
      {AT, "BAD", _} -> record(I);
      _ -> ok
    end, I + 1 end, 0, string:split(string:trim(B), "\\n", all)).
record(N) -> try settle(N) catch _:E -> file:write_file("out.json", io_lib:format("[\\"~w\\"]", [E])) end.
settle(N) -> erlang:error({ledger_closed, N}).
""", "", "escript main.escript"),
}

HELD = {"swipl", "sbcl", "guile", "erl"}
PARTS, AT = 6, 150


# The sanitizer has a report of its own, and tells a handler what it is about and where.
SANITIZER_RECORD = r"""#include <fstream>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
static void record(const char *) {
  char at[4096] = "";
  __sanitizer_symbolize_pc(__asan_get_report_pc(), "%s:%l in %f", at, sizeof at);
  std::ofstream("out.json") << "[\"" << __asan_get_report_description() << "\", \"" << at << "\"]";
}
static int on = (__asan_set_error_report_callback(record), 0);
"""


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


def trace(corpus, tool, n):
    file, text, build, cmd = PROGRAMS[tool]
    need({"java": "javac", "rust": "rustc", "c++": "g++", "lua": "lua5.4", "erl": "escript"}.get(tool, tool))
    name = "trace-" + tool.replace("+", "x")
    d = corpus.dir(name)
    bad = [1, 4, 2][n % 3]
    lines = noise(random.Random(400 + n), 290 * PARTS)
    write(d, {file: text.replace("AT", str(AT)).replace("BAD", str(bad)), **{f"part{p}": "\n".join(lines[p * 290:(p + 1) * 290]) + "\n" for p in range(PARTS)}})
    if build:
        run(build, d, ok=True)
    log = run(f"for PART in {' '.join(map(str, range(PARTS)))}; do export PART; {cmd}; done", d)
    if tool == "c++":
        write(d, {"record.cpp": SANITIZER_RECORD})
        run("g++ -g -fsanitize=address main.cpp record.cpp -o recorded", d, ok=True)
        run(f"PART={bad} ./recorded", d, ok=False)
        what, at = json.load(open(d / "out.json"))
        facts, source = [[f"ERROR: AddressSanitizer: {what} "], [f"SUMMARY: AddressSanitizer: {what} {at}"]], "what the sanitizer tells a handler of the program"
    else:
        run(f"export PART={bad} RECORD=1; {cmd}", d)
        facts, source = [[first_line(f)] for f in json.load(open(d / "out.json"))], "a handler of the program"
    corpus.add(name, tool, log, facts, source, tool in HELD)


def traces(corpus):
    for n, tool in enumerate(PROGRAMS):
        try:
            trace(corpus, tool, n)
        except Skip as missing:
            print(f"trace-{tool}: skipped, there is no {missing}")


ALL = [traces]

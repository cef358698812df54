"""Compilers, linkers and linters over projects of many files, most of them only
warned about."""

import json
import os
import random
import re
import shutil
import xml.etree.ElementTree as ET

from corpus import camel, first_line, json_lines, names, need, pack, run, write


def c_file(name, i, broken, cpp=False):
    lines = ["#include <stdio.h>", "#include <string.h>", "#include <stdlib.h>", ""]
    for k in range(4):
        lines += [f"int {name}_{k}(int count, const char *label)", "{", f"\tint unused_{k};", f"\tunsigned limit = {i + k};",
                  "\tif (count < limit)", f'\t\tprintf("%d {name} %s\\n", (long)count, label);', "\treturn count;", "}", ""]
    lines += broken
    return "\n".join(lines) + "\n"


C_BROKEN = [
    ["int broken_call(int n)", "{", "\treturn undeclared_limit + n;", "}"],
    ["struct pair { int a; };", "int broken_member(struct pair *p)", "{", "\treturn p->second;", "}"],
    ["int broken_type(void)", "{", '\tint *p = "text" * 2;', "\treturn *p;", "}"],
    ["int broken_semicolon(int n)", "{", "\tint m = n", "\treturn m;", "}"],
    ["#include \"missing_header.h\""],
    ["int broken_args(int n)", "{", "\treturn strlen(\"a\", n);", "}"],
]


def errors(out):
    """Returns the errors in the JSON of a compiler of the GCC, each after those that belong to it."""
    every = [g for some in json_lines(out) for g in some]
    return [c for g in every for c in [*g.get("children", [])[::-1], g] if c["kind"] in ("error", "fatal error")]


def gcc_facts(d, command, file):
    """Returns the errors that gcc has for a file, from its JSON."""
    _, err = run(f"{command} -fsyntax-only -fdiagnostics-format=json {file}", d, apart=True)
    facts = []
    for g in errors(err):
        at = g["locations"][0]["caret"]
        facts.append([f"{at['file']}:{at['line']}:{at.get('display-column', at.get('column'))}: ", "error: ", g["message"]])
    return facts


def make_c(corpus, name, compiler, seed, count, broken_at, held=False, flags="-Wall -Wextra", ext="c", source=None):
    need(compiler)
    d = corpus.dir(name)
    rng = random.Random(seed)
    files = names(seed, count)
    for i, f in enumerate(files):
        broken = rng.choice(C_BROKEN) if i in broken_at else []
        write(d, {f"src/{f}.{ext}": c_file(f, i, broken)})
    rules = "".join(f"build/{f}.o: src/{f}.{ext}\n\t{compiler} {flags} -Iinclude -c -o $@ $<\n" for f in files)
    write(d, {"Makefile": "all: " + " ".join(f"build/{f}.o" for f in files) + "\n\n" + rules})
    (d / "build").mkdir()
    log = run(["make", "-k"], d, ok=False)
    facts = []
    for i in sorted(broken_at):
        facts += gcc_facts(d, f"{compiler} {flags} -Iinclude", f"src/{files[i]}.{ext}")
    corpus.add(name, compiler, log, facts, source or f"{compiler} -fdiagnostics-format=json", held)


def gcc(corpus):
    make_c(corpus, "gcc-first", "gcc", 1, 60, {2, 31})
    make_c(corpus, "gcc-middle", "gcc", 2, 70, {30, 33, 41})
    make_c(corpus, "gcc-many", "gcc", 3, 80, {9, 17, 25, 40, 52})
    make_c(corpus, "gxx", "g++", 4, 60, {22}, ext="cpp")
    make_c(corpus, "gxx-late", "g++", 5, 60, {40, 55}, ext="cpp")


# It parses files with the library of clang, which hands over its diagnostics.
CLANG_REPORT = """import json, sys
from clang import cindex
for file in sys.argv[1:]:
    for d in cindex.Index.create().parse(file, ["-Wall", "-Wextra"]).diagnostics:
        if d.severity >= cindex.Diagnostic.Error:
            print(json.dumps([d.location.file.name, d.location.line, d.location.column, d.spelling]))
"""


def clang(corpus):
    need("clang")
    for name, seed, at in (("clang", 6, {14}), ("clang-some", 7, {5, 20, 44})):
        d = corpus.dir(name)
        rng = random.Random(seed)
        files = names(seed, 50)
        for i, f in enumerate(files):
            write(d, {f"src/{f}.c": c_file(f, i, rng.choice(C_BROKEN[:4]) if i in at else [])})
        cmd = "for f in src/*.c; do echo \"  CC      $f\"; clang -Wall -Wextra -c -o /dev/null $f; done; true"
        log = run(cmd, d)
        write(d, {"report.py": CLANG_REPORT})
        out, _ = run("/usr/bin/python3 report.py src/*.c", d, ok=True, apart=True)
        facts = [[f"{file}:{line}:{column}: error: {message}"] for file, line, column, message in json_lines(out)]
        corpus.add(name, "clang", log, facts, "the diagnostics of libclang")


def templates(corpus):
    need("g++")
    d = corpus.dir("gxx-templates")
    body = "#include <map>\n#include <string>\n#include <vector>\n#include <algorithm>\n#include <iostream>\nstruct item { int a; };\n"
    for i in range(5):
        body += f"void use_{i}() {{ std::map<item, int> m; std::vector<std::map<item, int>> v; m[item{{{i}}}] = 1; std::sort(v.begin(), v.end()); std::cout << v[{i}]; }}\n"
    write(d, {"main.cpp": body})
    log = run("g++ -std=c++17 -c main.cpp", d, ok=False)
    corpus.add("gxx-templates", "g++", log, gcc_facts(d, "g++ -std=c++17", "main.cpp"), "g++ -fdiagnostics-format=json")


def fortran(corpus):
    need("gfortran")
    d = corpus.dir("gfortran")
    files = names(11, 70)
    at = {28, 29}
    for i, f in enumerate(files):
        bad = f"  {f}_total = undeclared_thing + 1\n" if i in at else ""
        write(d, {f"src/{f}.f90": f"module m_{f}\n  implicit none\ncontains\n" + "".join(
            f"  integer function {f}_{k}(count, label)\n    integer, intent(in) :: count\n    character(len=*), intent(in) :: label\n    integer :: unused_{k}\n    real :: x\n    x = count\n    {f}_{k} = x * 1.5d0\n{bad if k == 1 else ''}  end function\n"
            for k in range(3)) + "end module\n"})
    log = run("for f in src/*.f90; do echo gfortran -Wall -Wextra -Wconversion -c $f; gfortran -Wall -Wextra -Wconversion -J. -c -o /dev/null $f; done; true", d)
    facts = []
    for i in sorted(at, key=lambda i: files[i]):
        _, err = run(f"gfortran -fsyntax-only -fdiagnostics-format=json src/{files[i]}.f90", d, apart=True)
        # What it tried in vain before it read the file as a module is in there, too.
        facts += [[f] for f in ["Error: " + first_line(g["message"]) for g in errors(err)] if f.encode() in log]
    corpus.add("gfortran", "gfortran", log, facts, "gfortran -fdiagnostics-format=json", held=True)


def ada(corpus):
    need("gnatmake")
    d = corpus.dir("gnat")
    files = names(12, 110)
    bad = {53, 80}
    for i, f in enumerate(files):
        wrong = '   Total := "text";\n' if i in bad else ""
        write(d, {f"{f}.adb": f"procedure {f} is\n   Total : Integer := 0;\n" + "".join(f"   Unused_{k} : Integer := {k};\n" for k in range(12)) + f"begin\n{wrong}   if Total > 1 then\n      null;\n   end if;\nend {f};\n"})
    log = run("for f in *.adb; do echo gcc -c -gnatwa $f; gcc -c -gnatwa -gnatv $f; done; true", d)
    facts = []
    for i in sorted(bad, key=lambda i: files[i]):
        facts += [[">>>", "error: " + g["message"]] for g in errors(run(f"gcc -c -gnatc -fdiagnostics-format=json {files[i]}.adb", d))]
    corpus.add("gnat", "gnat", log, facts, "gcc -fdiagnostics-format=json", held=True)


def linkers(corpus):
    for name, seed, ld in (("ld-bfd", 21, "bfd"), ("ld-gold", 22, "gold"), ("ld-lld", 23, "lld")):
        need("gcc", "llvm-readelf", "ld." + ld)
        d = corpus.dir(name)
        files = names(seed, 90)
        missing = {17: "journal_rotate_now", 18: "packet_digest_of", 60: "tenant_quota_left"}
        main = "int main(void) { int n = 0;\n"
        for i, f in enumerate(files):
            use = f"int {missing[i]}(int);\n" if i in missing else ""
            call = f" + {missing[i]}(n)" if i in missing else ""
            write(d, {f"src/{f}.c": use + "".join(f"int {f}_{k}(int n, int m) {{ int unused_{k}; return n{call if k == 0 else ''}; }}\n" for k in range(4))})
            main += f"extern int {f}_0(int, int); n += {f}_0(n, 1);\n"
        write(d, {"src/main.c": main + "return n; }\n"})
        (d / "build").mkdir()
        log = run("set -x; for f in src/*.c; do gcc -O0 -Wall -Wextra -c -o build/$(basename $f .c).o $f; done", d)
        log += run(f"set -x; gcc -fuse-ld={ld} -o app build/*.o", d, ok=False) + pack(d, 200)
        facts = [["undefined", s] for s in undefined(d, ld)] + [["collect2: error: ", f"ld returned {status(d, ld)} exit status"]]
        corpus.add(name, "ld." + ld, log, facts, "the symbols of what the linker makes with -r, and its exit status")


def undefined(d, ld):
    """Returns the symbols that are not defined anywhere, which is no error yet where a linker makes one object of many."""
    run(f"gcc -fuse-ld={ld} -r -nostdlib -o all.o build/*.o", d, ok=True)
    said = json.loads(run("llvm-readelf --elf-output-style=JSON --symbols all.o", d, ok=True))
    symbols = [s["Symbol"] for s in said[0]["all.o"]["Symbols"]]
    return [s["Name"]["Value"] for s in symbols if s["Section"]["Value"] == "Undefined" and s["Binding"]["Value"] == "Global"]


def status(d, ld):
    """Returns with what a linker ends: the compiler runs one that writes it down."""
    write(d, {f"bin/ld.{ld}": f'#!/bin/sh\n{shutil.which("ld." + ld)} "$@"\necho $? > status\n'})
    os.chmod(d / f"bin/ld.{ld}", 0o755)
    run(f"gcc -B bin -fuse-ld={ld} -o app build/*.o", d)
    return (d / "status").read_text().strip()


def rust(corpus):
    need("rustc")
    for name, seed, at in (("rustc", 31, 20), ("rustc-early", 32, 2)):
        d = corpus.dir(name)
        mods = names(seed, 45)
        wrong = {at: "    let total: u32 = \"text\";\n    total as i32 + n\n", at + 9: "    n + missing_value\n"}
        main = ""
        for i, m in enumerate(mods):
            main += f"mod {m};\n"
            body = "".join(f"pub fn {m}_{k}(n: i32) -> i32 {{\n    let unused_{k} = n;\n    let mut plain = {k};\n{wrong[i] if i in wrong and k == 1 else '    n + 1' + chr(10)}}}\n" for k in range(3))
            write(d, {f"src/{m}.rs": body})
        write(d, {"src/main.rs": main + "fn main() {}\n", "Cargo.toml": f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n'})
        log = run("cargo build --offline", d, ok=False)
        # A name that is not found ends the work before types are checked, so
        # each kind is asked for where it stands.
        out, _ = run("cargo build --offline --message-format=json", d, apart=True)
        facts = []
        for g in json_lines(out):
            if g.get("reason") == "compiler-message" and g["message"]["level"] == "error" and g["message"]["spans"]:
                m = g["message"]
                s = m["spans"][0]
                facts += [["error", m["message"]], [f"--> {s['file_name']}:{s['line_start']}:{s['column_start']}"]]
        corpus.add(name, "cargo", log, facts, "cargo --message-format=json")


def go(corpus):
    need("go")
    d = corpus.dir("go-build")
    mods = names(41, 130)
    write(d, {"go.mod": "module example.org/app\n\ngo 1.21\n"})
    for i, m in enumerate(mods):
        wrong = "\treturn missingValue + n\n" if i in (60, 101) else "\treturn n\n"
        write(d, {f"{m}/{m}.go": f"package {m}\n\nimport \"fmt\"\n\nfunc Do(n int) int {{\n\tfmt.Printf(\"%s\\n\", n)\n{wrong}}}\n" + "".join(
            f"\nfunc Do{k}(n int) {{\n\tfmt.Printf(\"%d and %d\\n\", n)\n\tn = n\n}}\n" for k in range(8))})
    log = run("go build -v ./...; go vet ./...", d)
    facts = []
    for g in json_lines(run("go build -json ./...", d)):
        text = g.get("Output", "").strip()
        if g.get("Action") == "build-output" and not text.startswith("#"):
            facts.append([text])
    corpus.add("go-build", "go build", log, facts, "go build -json")


# It compiles with the library of javac, which hands over its diagnostics.
JAVA_REPORT = r"""import java.util.*;
import javax.tools.*;
public class Report {
    static String quote(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }
    public static void main(String[] args) {
        List<String> all = Arrays.asList(args);
        List<String> flags = all.subList(0, all.indexOf("--")), sources = all.subList(all.indexOf("--") + 1, all.size());
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        DiagnosticCollector<JavaFileObject> found = new DiagnosticCollector<>();
        StandardJavaFileManager files = compiler.getStandardFileManager(found, null, null);
        compiler.getTask(null, files, found, flags, null, files.getJavaFileObjectsFromStrings(sources)).call();
        for (Diagnostic<? extends JavaFileObject> d : found.getDiagnostics())
            if (d.getKind() == Diagnostic.Kind.ERROR)
                System.out.printf("[%s, %d, %s]%n", quote(d.getSource().getName()), d.getLineNumber(), quote(d.getMessage(null)));
    }
}
"""


def java(corpus):
    need("javac", "java")
    for name, seed, at in (("javac", 51, {13, 30}), ("javac-late", 52, {37})):
        d = corpus.dir(name)
        files = [camel(n) for n in names(seed, 40)]
        for i, f in enumerate(files):
            wrong = "        int total = \"text\";\n" if i in at else ""
            write(d, {f"src/{f}.java": f"import java.util.*;\npublic class {f} {{\n" + "".join(
                f"    public List run{k}(Map source) {{\n        List plain{k} = new ArrayList(source.keySet());\n        plain{k}.add(new Integer({k}));\n{wrong if k == 2 else ''}        return plain{k};\n    }}\n"
                for k in range(6)) + "}\n"})
        flags = "-Xlint:all -Xmaxwarns 3000 -Xmaxerrs 500 -d out"
        log = run(f"javac {flags} src/*.java", d, ok=False)
        write(d, {"Report.java": JAVA_REPORT})
        out, _ = run(f"java Report.java {flags} -- src/*.java", d, ok=True, apart=True)
        # The log names types without their packages.
        facts = [[f"{file}:{line}: error: " + re.sub(r"\b([a-z]\w*\.)+(?=[A-Z])", "", first_line(message))] for file, line, message in json_lines(out)]
        facts.append([f"{len(facts)} error"])
        corpus.add(name, "javac", log, facts, "javac's diagnostics, as javax.tools.DiagnosticCollector collects them")


# It checks a project with the compiler's own interface, which hands over its diagnostics.
TS_REPORT = r"""const path = require('path');
const ts = require('typescript');
const config = ts.parseJsonConfigFileContent(ts.readConfigFile('tsconfig.json', ts.sys.readFile).config, ts.sys, '.');
for (const d of ts.getPreEmitDiagnostics(ts.createProgram(config.fileNames, config.options))) {
  if (d.category !== ts.DiagnosticCategory.Error) continue;
  const at = d.file.getLineAndCharacterOfPosition(d.start);
  console.log(JSON.stringify([path.relative('.', d.file.fileName), at.line + 1, at.character + 1, d.code, ts.flattenDiagnosticMessageText(d.messageText, '\n')]));
}
"""


def typescript(corpus):
    need("npm", "node")
    d = corpus.dir("tsc")
    run("npm init -y && npm install --no-audit --no-fund typescript@5", d, ok=True)
    mods = names(61, 400)
    for i, m in enumerate(mods):
        wrong = f"export const total: number = 'text {i}';\n" if i in (160, 290) else ""
        write(d, {f"src/{m}.ts": f"export function {m}(n: number): number {{\n  return n + 1;\n}}\n{wrong}"})
    write(d, {"tsconfig.json": json.dumps({"compilerOptions": {"strict": True, "noEmit": True, "target": "es2020", "module": "commonjs"}, "include": ["src"]})})
    log = run("npx tsc --pretty true --listFiles --explainFiles --extendedDiagnostics --traceResolution | sed 's/\\x1b\\[[0-9;]*m//g'", d)
    write(d, {"report.js": TS_REPORT})
    out, _ = run("node report.js", d, ok=True, apart=True)
    facts = [[f"{file}:{line}:{column} - error TS{code}: {first_line(message)}"] for file, line, column, code, message in json_lines(out)]
    corpus.add("tsc", "tsc", log, facts, "ts.getPreEmitDiagnostics")
    colour = run("npx tsc --pretty true --listFiles --explainFiles --traceResolution", d)
    corpus.add("tsc-colour", "tsc", colour, facts, "ts.getPreEmitDiagnostics")


def haskell(corpus):
    need("ghc")
    d = corpus.dir("ghc")
    mods = [camel(n) for n in names(71, 45)]
    for i, m in enumerate(mods):
        wrong = f"total{i} :: Int\ntotal{i} = \"text\"\n" if i in (22,) else ""
        write(d, {f"{m}.hs": f"module {m} where\nimport Data.List\nimport Data.Char\n" + "".join(f"run{k} n = let unused = n in map (+{k}) [1,2,n]\n" for k in range(5)) + wrong})
    log = run("for f in *.hs; do ghc -Wall -fno-code $f 2>&1; done; true", d)
    facts = []
    for g in json_lines(run(f"ghc -Wall -fno-code -ddump-json {mods[22]}.hs", d)):
        if g.get("severity") == "SevError":
            s = g["span"]
            facts += [[f"{s['file']}:{s['startLine']}:{s['startCol']}: error"], [first_line(g["doc"]).lstrip("• ")[:60]]]
    corpus.add("ghc", "ghc", log, facts, "ghc -ddump-json", held=True)


# It types a file with the compiler's own library, which hands over its report.
REPORT = """let () =
  Compmisc.init_path ();
  try ignore (Typemod.type_structure (Compmisc.initial_env ()) (Pparse.parse_implementation ~tool_name:"report" Sys.argv.(1)))
  with e -> match Location.error_of_exn e with
  | Some (`Ok r) -> Printf.printf "[%S, %d, %S]" r.main.loc.loc_start.pos_fname r.main.loc.loc_start.pos_lnum (Format.asprintf "%t" r.main.txt)
  | _ -> raise e
"""


def ocaml(corpus):
    need("ocamlc")
    d = corpus.dir("ocaml")
    mods = names(81, 130)
    at = {44, 90}
    for i, m in enumerate(mods):
        wrong = "let total : int = \"text\"\n" if i in at else ""
        write(d, {f"{m}.ml": "".join(f"let run_{k} n = let unused_{k} = n in match n with 0 -> 1\n" for k in range(3)) + wrong})
    log = run("for f in *.ml; do echo ocamlc -w +a -c $f; ocamlc -w +a -c $f; done; true", d)
    write(d, {"report/report.ml": REPORT})
    run("ocamlc -w -a -I +compiler-libs ocamlcommon.cma report.ml -o report", d / "report", ok=True)
    facts = []
    for i in sorted(at, key=lambda i: mods[i]):
        out, _ = run(f"report/report {mods[i]}.ml", d, apart=True)
        file, line, message = json.loads(out)
        facts += [[f'File "{file}", line {line},'], ["Error: " + message[:50]]]
    corpus.add("ocaml", "ocamlc", log, facts, "the compiler's report, from its library")


def linters(corpus):
    need("cppcheck")
    d = corpus.dir("cppcheck")
    files = names(91, 90)
    at = {33, 70}
    for i, f in enumerate(files):
        bad = "int overrun(void)\n{\n\tchar data[4];\n\tdata[10] = 1;\n\treturn data[0];\n}\n" if i in at else ""
        write(d, {f"src/{f}.c": c_file(f, i, []) + bad})
    log = run("cppcheck --enable=all --inconclusive src", d)
    _, xml = run("cppcheck --enable=all --inconclusive --xml src", d, apart=True)
    facts = []
    for e in ET.fromstring(xml.decode()).iter("error"):
        if e.get("severity") == "error":
            at = e.find("location")
            facts.append([f"{at.get('file')}:{at.get('line')}:{at.get('column')}: error: ", e.get("msg")])
    corpus.add("cppcheck", "cppcheck", log, facts, "cppcheck --xml", held=True)


def shell(corpus):
    need("shellcheck")
    d = corpus.dir("shellcheck")
    files = names(92, 60)
    for i, f in enumerate(files):
        bad = "if [ $1 = x ; then echo y; fi\n" if i in (21,) else ""
        write(d, {f"{f}.sh": "#!/bin/sh\n" + "".join(f"cd $dir_{k}\necho $name_{k} `date`\n" for k in range(5)) + bad})
    log = run("shellcheck *.sh", d)
    bad = [g for g in json.loads(run(f"shellcheck -f json {files[21]}.sh", d)) if g["level"] == "error"]
    facts = [[f"In {file} line {line}:"] for file, line in dict.fromkeys((g["file"], g["line"]) for g in bad)]
    facts += [[f"SC{g['code']}", g["message"][:40]] for g in bad]
    corpus.add("shellcheck", "shellcheck", log, facts, "shellcheck -f json", held=True)


ALL = [gcc, clang, templates, fortran, ada, linkers, rust, go, java, typescript, haskell, ocaml, linters, shell]

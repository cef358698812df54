"""Test runners over suites of many tests, most of which pass and talk."""

import json
import random
import re
import xml.etree.ElementTree as ET

from corpus import camel, first_line, json_lines, names, need, pack, run, write

CHATTER = ["connected to primary", "retrying after error 110: timed out", "no errors found in batch", "cache miss for key", "failed over to replica, continuing",
           "flushed 0 failed writes", "received frame", "loaded exception list", "warning threshold not reached", "expected size matches"]


def chat(rng, i):
    return f"[{rng.choice(['debug', 'info', 'trace'])}] {rng.choice(CHATTER)} seq={i * 7919 % 10007} shard={rng.randrange(16)}"


def cases(seed, n, case):
    """Returns n tests of a suite: what case makes of the number and the name of each, and of the random numbers for what it prints."""
    rng = random.Random(seed)
    return "".join(case(i, t, rng) for i, t in enumerate(names(seed, n)))


def junit(path_or_text):
    text = path_or_text if isinstance(path_or_text, bytes) else open(path_or_text, "rb").read()
    for case in ET.fromstring(text).iter("testcase"):
        for bad in case:
            if bad.tag in ("failure", "error"):
                yield case.get("name"), case.get("classname") or "", bad.get("message") or "", bad.text or ""


def go_test(corpus):
    need("go")
    for name, seed, bad, held in (("go-test", 101, {40}, False), ("go-test-some", 102, {3, 77, 150}, False)):
        d = corpus.dir(name)
        tests = names(seed, 260)
        rng = random.Random(seed)
        write(d, {"go.mod": "module example.org/app\n\ngo 1.22\n"})
        for p in range(4):
            body = "package p\n\nimport (\n\t\"fmt\"\n\t\"testing\"\n)\n"
            for i, t in enumerate(tests):
                if i % 4 != p:
                    continue
                wrong = f"\tif got, want := {i}+1, {i}; got != want {{\n\t\tt.Errorf(\"sum of {t}: got %d, want %d\", got, want)\n\t}}\n" if i in bad else ""
                body += f"\nfunc Test{camel(t)}(t *testing.T) {{\n\tfmt.Println(\"{chat(rng, i)}\")\n\tt.Log(\"{chat(rng, i + 1)}\")\n{wrong}\tfor i := range 2 {{\n\t\tt.Run(fmt.Sprint(\"case \", i), func(t *testing.T) {{ t.Log(\"checked\", i) }})\n\t}}\n}}\n"
            write(d, {f"p{p}/p_test.go": body})
        log = run("go test -v ./...", d, ok=False)
        facts = []
        for g in json_lines(run("go test -json ./...", d)):
            if g["Action"] == "output" and "Test" in g and "got" in g["Output"]:
                facts.append([g["Output"].strip()])
            if g["Action"] == "fail" and "Test" in g:
                facts.append([f"--- FAIL: {g['Test']} "])
            elif g["Action"] == "fail":
                facts.append([f"FAIL\t{g['Package']}\t"])
        corpus.add(name, "go test", log, facts, "go test -json", held)


def go_panic(corpus):
    need("go")
    d = corpus.dir("go-test-panic")
    tests = names(103, 300)
    rng = random.Random(103)
    write(d, {"go.mod": "module example.org/app\n\ngo 1.22\n"})
    body = "package app\n\nimport (\n\t\"fmt\"\n\t\"testing\"\n)\n"
    for i, t in enumerate(tests):
        wrong = "\tvar m map[string]int\n\tm[\"a\"] = 1\n" if i == 210 else ""
        body += f"\nfunc Test{camel(t)}(t *testing.T) {{\n\tfor i := range 4 {{\n\t\tfmt.Println(\"{chat(rng, i)}\", i)\n\t}}\n{wrong}}}\n"
    write(d, {"app_test.go": body})
    log = run("go test -v ./...", d, ok=False)
    facts = []
    for g in json_lines(run("go test -json ./...", d)):
        if g["Action"] == "output" and g["Output"].startswith("panic: "):
            facts.append([g["Output"].strip()])
        elif g["Action"] == "fail" and "Test" in g:
            facts.append([f"--- FAIL: {g['Test']} "])
    corpus.add("go-test-panic", "go test", log + pack(d, 300), facts, "go test -json")


def py_tests(rng, tests, bad, style):
    body = "import unittest\nimport logging\nlogging.basicConfig(level=0)\n"
    if style == "class":
        body += "\nclass Suite(unittest.TestCase):\n"
    for i, t in enumerate(tests):
        kind = bad.get(i)
        if style == "class":
            body += f"    def test_{t}(self):\n        for n in range(3):\n            logging.info('{chat(rng, i)} n=%d', n)\n"
            body += {None: "        self.assertEqual(1 + 1, 2)\n", "eq": f"        self.assertEqual(sum(range({i})), {i})\n", "raise": f"        {{}}['{t}']\n"}[kind]
        else:
            body += f"\ndef test_{t}():\n    print('{chat(rng, i)}')\n"
            body += {None: "    assert 1 + 1 == 2\n", "eq": f"    total = sum(range({i}))\n    assert total == {i}\n", "raise": f"    raise ValueError('no {t} for {i}')\n"}[kind]
    return body


def pytest(corpus):
    need("pytest")
    for name, seed, bad, flags in (("pytest", 111, {600: "eq"}, "-v"), ("pytest-some", 112, {20: "raise", 300: "eq", 700: "raise"}, "-v -s"),
                                   ("pytest-quiet", 113, {200: "eq"}, "-v --tb=short -rA")):
        d = corpus.dir(name)
        tests, rng = names(seed, 1100), random.Random(seed)
        for k in range(6):
            part = {j: bad[i] for j, i in enumerate(range(k, 1100, 6)) if i in bad}
            write(d, {f"test_part{k}.py": py_tests(rng, tests[k::6], part, "function")})
        log = run(f"pytest -p no:cacheprovider {flags}", d, ok=False)
        run("pytest -p no:cacheprovider -q --junitxml=out.xml", d)
        facts = []
        for case, _, message, _ in junit(d / "out.xml"):
            facts += [["E ", first_line(message).replace("AssertionError: ", "")], ["FAILED ", f"::{case} "]]
        corpus.add(name, "pytest", log, facts, "pytest --junitxml")


def unittest(corpus):
    need("python3")
    for name, seed, bad in (("unittest", 121, {150: "eq"}), ("unittest-some", 122, {10: "eq", 200: "raise"})):
        d = corpus.dir(name)
        tests, rng = names(seed, 320), random.Random(seed)
        write(d, {"test_app.py": py_tests(rng, sorted(tests), bad, "class"),
                  "collect.py": "import io, json, unittest\nsuite = unittest.defaultTestLoader.loadTestsFromName('test_app')\nresult = unittest.TextTestRunner(stream=io.StringIO()).run(suite)\n"
                                "json.dump([[str(t), e.strip().splitlines()[-1]] for t, e in result.failures + result.errors], open('out.json', 'w'))\n"})
        log = run("python3 -m unittest -v test_app", d) + pack(d, 400)
        run("python3 collect.py", d)
        facts = []
        for case, last in json.load(open(d / "out.json")):
            facts += [[": " + case.split()[0]], [last]]
        corpus.add(name, "unittest", log, facts, "unittest.TestResult")


def node_deps(d, *packages):
    need("npm", "node")
    run("npm init -y", d, ok=True)
    run("npm install --no-audit --no-fund " + " ".join(packages), d, ok=True, timeout=400)


def js_suite(rng, tests, bad, expect):
    body = f"describe('{rng.choice(tests)} suite', () => {{\n"
    for i, t in enumerate(tests):
        wrong = {None: "", "eq": expect, "throw": f"    const o = undefined; o.{t};\n"}[bad.get(i)]
        body += f"  it('{t.replace('_', ' ')} {i}', () => {{\n    console.log('{chat(rng, i)}');\n{wrong}  }});\n"
    return body + "});\n"


def jest(corpus):
    d = corpus.dir("jest")
    node_deps(d, "jest@29")
    for name, seed, bad in (("jest", 131, {(2, 20): "eq"}), ("jest-some", 132, {(0, 3): "throw", (4, 50): "eq"})):
        rng = random.Random(seed)
        for k in range(6):
            write(d, {f"part{k}.test.js": js_suite(rng, names(seed + k, 90), {i: v for (p, i), v in bad.items() if p == k}, "    expect({ total: 3, kind: 'a' }).toEqual({ total: 4, kind: 'a' });\n")})
        log = run("npx jest --verbose --runInBand", d, ok=False)
        out, _ = run("npx jest --json --runInBand --silent", d, apart=True)
        facts = []
        for suite in json.loads(out)["testResults"]:
            for case in suite["assertionResults"]:
                if case["status"] == "failed":
                    text = re.sub(r"\x1b\[[0-9;]*m", "", case["failureMessages"][0])
                    facts.append(["✕ ", case["title"]])
                    facts += [[l.strip()] for l in text.splitlines() if re.match(r"\s*([-+] {2,}\S|TypeError)", l) and "Expected" not in l and "Received" not in l][:3]
        corpus.add(name, "jest", log, facts, "jest --json")


def mocha(corpus):
    d = corpus.dir("mocha")
    node_deps(d, "mocha@10")
    for name, seed, bad in (("mocha", 141, {(1, 50): "eq"}), ("mocha-some", 142, {(0, 3): "throw", (2, 80): "eq"})):
        rng = random.Random(seed)
        for k in range(4):
            write(d, {f"test/part{k}.js": "const assert = require('assert');\n" + js_suite(rng, names(seed + k, 200), {i: v for (p, i), v in bad.items() if p == k}, "    assert.strictEqual(3, 4);\n")})
        log = run("npx mocha --no-color", d) + pack(d, 300)
        run("npx mocha --reporter json --reporter-option output=out.json > /dev/null", d)
        facts = []
        for case in json.load(open(d / "out.json"))["failures"]:
            facts += [[") ", case["title"]], [first_line(case["err"].get("stack")).split(":")[0], first_line(case["err"]["message"])[:50]]]
        corpus.add(name, "mocha", log, facts, "mocha --reporter json")


def node_test(corpus):
    d = corpus.dir("node-test")
    need("node")
    rng = random.Random(151)
    for k in range(5):
        write(d, {f"part{k}.test.js": "const { describe, it } = require('node:test');\nconst assert = require('assert');\n" + js_suite(rng, names(151 + k, 220), {33: "eq"} if k == 2 else {}, "    assert.strictEqual(3, 4, 'quota of the tenant');\n")})
    log = run("node --test --test-reporter=spec; true", d)
    out = run("node --test --test-reporter=junit", d)
    facts = []
    for case, _, message, text in junit(re.sub(rb"(?s)^.*?<\?xml", b"<?xml", out)):
        facts += [["✖ ", case], ["AssertionError", message.partition("3 !== 4")[0]]]
    corpus.add("node-test", "node --test", log, facts, "node --test-reporter=junit")
    tap = run("node --test --test-reporter=tap; true", d)
    corpus.add("node-tap", "node --test", tap, [["not ok", facts[0][1]]], "node --test-reporter=junit")


def vitest(corpus):
    d = corpus.dir("vitest")
    node_deps(d, "vitest@2")
    rng = random.Random(156)
    for k in range(6):
        write(d, {f"part{k}.test.js": "import { describe, it, expect } from 'vitest';\n" + js_suite(rng, names(156 + k, 80), {41: "eq"} if k == 3 else {}, "    expect([1, 2, 3]).toEqual([1, 2, 4]);\n")})
    log = run("npx vitest run --reporter=verbose", d, ok=False)
    out, _ = run("npx vitest run --reporter=json --silent", d, apart=True)
    facts = []
    for suite in json.loads(out[out.index(b"{"):])["testResults"]:
        for case in suite["assertionResults"]:
            if case["status"] == "failed":
                facts += [["× ", case["title"]], [first_line(case["failureMessages"][0])[:60]]]
    corpus.add("vitest", "vitest", log, facts, "vitest --reporter=json", held=True)


def cargo_test(corpus):
    need("cargo")
    for name, seed, bad in (("cargo-test", 161, {500}), ("cargo-test-some", 162, {3, 250, 900})):
        d = corpus.dir(name)
        tests = names(seed, 1100)
        body = "".join(f"#[test]\nfn {t}_{i}() {{ assert_eq!(1 + {1 if i in bad else 0}, 1, \"total of {t}\"); }}\n" for i, t in enumerate(tests))
        write(d, {"src/lib.rs": "pub fn f() {}\n", "tests/all.rs": body, "Cargo.toml": f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2021"\n'})
        log = run("cargo test --offline -- --test-threads=1", d, ok=False)
        out = run("cargo test --offline -- -Zunstable-options --format json --test-threads=1", d, env={"RUSTC_BOOTSTRAP": "1"})
        facts = []
        for g in json_lines(out):
            if g["type"] == "test" and g["event"] == "failed":
                facts.append([f"test {g['name']} ... FAILED"])
                facts += [[l.split(" (")[0], l.split("panicked")[1]] if "panicked" in l else [l] for l in g["stdout"].splitlines() if "panicked" in l or "assertion" in l]
        log += pack(d, 1000)
        corpus.add(name, "cargo test", log, facts, "cargo test --format json")


def ctest(corpus):
    need("ctest", "cmake")
    for name, seed, bad in (("ctest", 171, {180}), ("ctest-output", 172, {30, 60})):
        d = corpus.dir(name)
        tests = names(seed, 420)
        rng = random.Random(seed)
        body = "cmake_minimum_required(VERSION 3.21)\nproject(app NONE)\nenable_testing()\n"
        for i, t in enumerate(tests):
            fail = f"echo \"check of {t}: limit is {i}, must be {i + 1}\" >&2; exit 1" if i in bad else "exit 0"
            body += f"add_test(NAME {t}_{i} COMMAND sh -c [[echo \"{chat(rng, i)}\"; echo done; {fail}]])\n"
        write(d, {"CMakeLists.txt": body})
        run("cmake -B build .", d, ok=True)
        log = run(f"ctest --test-dir build {'-V' if 'output' in name else '--output-on-failure'} --output-junit out.xml", d)
        log += pack(d, 700)
        facts = []
        for case in ET.parse(d / "build/out.xml").getroot().iter("testcase"):
            if case.get("status") == "fail":
                facts += [[f" {case.get('name')} ", "***Failed"]]
                facts += [[f": {l}" if "output" in name else l] for l in (case.findtext("system-out") or "").splitlines() if l.startswith("check of")]
        corpus.add(name, "ctest", log, facts, "ctest --output-junit")


def gtest(corpus):
    need("g++")
    d = corpus.dir("gtest")
    tests = names(181, 400)
    body = "#include <gtest/gtest.h>\n#include <cstdio>\n"
    rng = random.Random(181)
    for i, t in enumerate(tests):
        body += f"TEST({camel(rng.choice(tests[:12]))}{i % 12}, {camel(t)}{i}) {{ puts(\"{chat(rng, i)}\"); EXPECT_EQ({2 if i == 170 else 1}, 1) << \"quota of {t}\"; }}\n"
    write(d, {"t.cc": body})
    run("g++ -O0 -o t t.cc -lgtest -lgtest_main -lpthread", d, ok=True)
    log = run("./t --gtest_output=json:out.json", d) + pack(d, 500)
    facts = []
    for suite in json.load(open(d / "out.json"))["testsuites"]:
        for case in suite["testsuite"]:
            for f in case.get("failures", []):
                facts += [["[  FAILED  ]", f"{suite['name']}.{case['name']} ("], [first_line(f["failure"])]] + [[l.strip()] for l in f["failure"].splitlines()[1:] if "quota" in l]
    corpus.add("gtest", "gtest", log, facts, "--gtest_output=json")


def catch2(corpus):
    need("g++")
    d = corpus.dir("catch2")
    tests = names(186, 260)
    body = "#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n"
    for i, t in enumerate(tests):
        body += f"TEST_CASE(\"{t.replace('_', ' ')} {i}\") {{ int total = {i}; CHECK(total >= 0); REQUIRE(total != {i if i in (90, 200) else -1}); }}\n"
    write(d, {"t.cc": body})
    run("g++ -O0 -o t t.cc", d, ok=True, timeout=500)
    log = run("./t -s", d, ok=False)
    facts = []
    for case in ET.fromstring(run("./t -r xml", d)).iter("TestCase"):
        for e in case.iter("Expression"):
            if e.get("success") == "false":
                facts += [[f"{e.get('filename')}:{e.get('line')}: FAILED:"], [e.findtext("Original").strip()], [e.findtext("Expanded").strip()]]
    corpus.add("catch2", "catch2", log, facts, "catch2 -r xml")


def maven(corpus):
    need("mvn", "javac")
    for name, seed, bad in (("maven", 191, {3: 10}), ("maven-some", 192, {0: 4, 5: 30})):
        d = corpus.dir(name)
        write(d, {"pom.xml": '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>app</artifactId><version>1</version>'
                  '<properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target><project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>'
                  '<dependencies><dependency><groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter</artifactId><version>5.10.2</version><scope>test</scope></dependency></dependencies>'
                  '<build><plugins><plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-surefire-plugin</artifactId><version>3.2.5</version></plugin></plugins></build></project>\n'})
        rng = random.Random(seed)
        for k in range(8):
            body = "import org.junit.jupiter.api.Test;\nimport static org.junit.jupiter.api.Assertions.*;\n" + f"class Part{k}Test {{\n"
            for i, t in enumerate(names(seed + k, 60)):
                wrong = f"assertEquals({i}, {i} + 1, \"total of {t}\");" if bad.get(k) == i else "assertTrue(true);"
                body += f"    @Test void {t}() {{ for (int n = 0; n < 3; n++) System.out.println(\"{chat(rng, i)} n=\" + n); {wrong} }}\n"
            write(d, {f"src/test/java/Part{k}Test.java": body + "}\n"})
        log = run("mvn -B -ntp test", d, ok=False, timeout=500)
        facts = []
        for f in sorted((d / "target/surefire-reports").glob("*.xml")):
            for case, cls, message, _ in junit(f):
                facts += [[f"{cls}.{case}", "FAILURE!"], [message]]
        corpus.add(name, "maven", log, facts, "surefire JUnit XML")


def ruby(corpus):
    need("ruby", "rspec")
    d = corpus.dir("rspec")
    body = "describe 'ledger' do\n"
    body += cases(201, 900, lambda i, t, rng: f"  it '{t.replace('_', ' ')} {i}' do\n    puts '{chat(rng, i)}'\n    expect({i}).to eq({i + 1 if i in (300, 610) else i})\n  end\n")
    write(d, {"spec/ledger_spec.rb": body + "end\n"})
    log = run("rspec --format documentation", d, ok=False) + pack(d, 300)
    run("rspec --format json --out out.json", d)
    facts = []
    for case in json.load(open(d / "out.json"))["examples"]:
        if case["status"] == "failed":
            facts += [[case["description"], "(FAILED"], [case["exception"]["message"].split("\n")[1].strip()], [case["exception"]["message"].split("\n")[2].strip()]]
    corpus.add("rspec", "rspec", log, facts, "rspec --format json")
    d = corpus.dir("test-unit")
    body = "require 'test/unit'\nclass LedgerTest < Test::Unit::TestCase\n"
    body += cases(201, 900, lambda i, t, rng: f"  def test_{t}_{i}\n    puts '{chat(rng, i)}'\n    assert_equal({i}, {i + 1 if i == 444 else i})\n  end\n")
    write(d, {"t.rb": body + "end\n"})
    log = run("ruby t.rb --verbose=verbose", d, ok=False) + pack(d, 300)
    out = run("ruby t.rb --runner=xml", d)
    facts = []
    for m in re.finditer(rb"(?s)<test-result>.*?</test-result>", out):
        result = ET.fromstring(m[0]).find("result")
        if result.findtext("status") == "failure":
            facts += [["Failure: ", result.findtext("test/name")]] + [[l.rstrip(".")] for l in result.findtext("detail").splitlines()]
    corpus.add("test-unit", "test-unit", log, facts, "test-unit --runner=xml", held=True)


def php(corpus):
    need("phpunit")
    d = corpus.dir("phpunit")
    body = "<?php\nclass LedgerTest extends PHPUnit\\Framework\\TestCase {\n"
    body += cases(211, 900, lambda i, t, rng: f"  public function test{camel(t)}{i}(): void {{ fwrite(STDOUT, '{chat(rng, i)}' . PHP_EOL); $this->assertSame({i + 1 if i in (450,) else i}, {i}, 'total of {t}'); }}\n")
    write(d, {"LedgerTest.php": body + "}\n"})
    log = run("phpunit --testdox LedgerTest.php", d) + pack(d, 300)
    run("phpunit --log-junit out.xml --testdox-xml testdox.xml LedgerTest.php > /dev/null", d)
    facts = [["✘ ", case.get("prettifiedMethodName")] for case in ET.parse(d / "testdox.xml").getroot() if case.get("exceptionMessage")]
    for case, _, _, text in junit(d / "out.xml"):
        facts += [[l.strip()] for l in text.strip().splitlines()[1:3] if l.strip()]
    corpus.add("phpunit", "phpunit", log, facts, "phpunit --log-junit")


def lua(corpus):
    need("busted")
    d = corpus.dir("busted")
    body = "describe('ledger', function()\n"
    body += cases(221, 900, lambda i, t, rng: f"  it('{t} {i}', function() print('{chat(rng, i)}') assert.are.equal({i}, {i + 1 if i in (333,) else i}) end)\n")
    write(d, {"spec/ledger_spec.lua": body + "end)\n"})
    log = run("busted -o TAP; true", d) + pack(d, 300)
    run("busted -o junit > out.xml", d)
    text = open(d / "out.xml", "rb").read()
    text = re.sub(rb"(?m)^\[(debug|info|trace)\] .*$", b"", text).strip()
    facts = []
    for case, _, message, body in junit(text):
        facts += [["not ok", case]] + [[l.strip()] for l in (message + "\n" + body).splitlines() if "Expected objects" in l or l.startswith("(")]
    corpus.add("busted", "busted", log, facts, "busted -o junit", held=True)


def bats(corpus):
    need("bats")
    d = corpus.dir("bats")
    tests = names(231, 320)
    body = ""
    for i, t in enumerate(tests):
        body += f"@test \"{t.replace('_', ' ')} {i}\" {{\n  for n in 1 2 3 4; do echo \"# step {i}.$n: {t} begun, error budget kept\" >&3; done\n  run echo {i}\n  [ \"$output\" = \"{i + 1 if i in (130,) else i}\" ]\n}}\n"
    write(d, {"t.bats": body})
    log = run("bats --tap --trace t.bats", d, ok=False, timeout=500)
    run("bats --report-formatter junit --output . t.bats", d, timeout=500)
    facts = []
    for case, _, _, text in junit(d / "report.xml"):
        facts += [["not ok", case]] + [[l.strip()] for l in text.splitlines() if "failed" in l][:1]
    corpus.add("bats", "bats", log, facts, "bats --report-formatter junit", held=True)


def r(corpus):
    need("Rscript")
    d = corpus.dir("testthat")
    body = "library(testthat)\n"
    body += cases(241, 500, lambda i, t, rng: f"test_that('{t.replace('_', ' ')} {i}', {{\n  cat('{chat(rng, i)}\\n'); cat('{chat(rng, i + 1)}\\n')\n  expect_equal({i}, {i + 1 if i in (260,) else i})\n}})\n")
    write(d, {"test-ledger.R": body})
    log = run("Rscript -e 'testthat::test_file(\"test-ledger.R\", reporter = \"location\")'; Rscript -e 'testthat::test_file(\"test-ledger.R\", reporter = \"check\")'", d)
    log += pack(d, 300)
    run("Rscript -e 'testthat::test_file(\"test-ledger.R\", reporter = testthat::JunitReporter$new(file = \"out.xml\"))'", d)
    facts = []
    for case, _, message, text in junit(d / "out.xml"):
        facts += [[l.strip()] for l in text.splitlines() if "not equal" in l][:1]
        facts += [["Failure", "test-ledger.R:"]]
    corpus.add("testthat", "testthat", log, facts, "testthat JUnit", held=True)


def erlang(corpus):
    need("erl")
    d = corpus.dir("eunit")
    body = "-module(ledger_tests).\n-include_lib(\"eunit/include/eunit.hrl\").\n"
    body += cases(251, 620, lambda i, t, rng: f"{t}_{i}_test() -> io:format(user, \"{chat(rng, i)}~n\", []), ?assertEqual({i}, {i + 1 if i in (240,) else i} + 0).\n")
    write(d, {"ledger_tests.erl": body})
    run("erlc ledger_tests.erl", d, ok=True)
    log = run("erl -noshell -eval 'eunit:test(ledger_tests, [verbose]), halt().'", d) + pack(d, 500)
    run("erl -noshell -eval 'eunit:test(ledger_tests, [{report, {eunit_surefire, [{dir, \".\"}]}}]), halt().'", d)
    facts = []
    for f in d.glob("TEST-*.xml"):
        for case, _, _, text in junit(f):
            facts += [["in function ledger_tests:" + case.split()[-1]]]
            facts += [[l.strip().rstrip(",")] for l in text.splitlines() if "{expected," in l or "{value," in l]
    corpus.add("eunit", "eunit", log, facts, "eunit_surefire XML", held=True)


def elixir(corpus):
    need("elixir")
    d = corpus.dir("exunit")
    tests = names(261, 700)
    rng = random.Random(261)
    body = """
defmodule Facts do
  use GenServer
  def init(_), do: {:ok, []}
  def handle_cast({:test_finished, %{state: {:failed, [{_, e, _} | _]}} = t}, s) do
    File.write!("out.txt", "#{t.name}\\n#{inspect(e.left)}\\n#{inspect(e.right)}\\n", [:append])
    {:noreply, s}
  end
  def handle_cast(_, s), do: {:noreply, s}
end
ExUnit.start(trace: true, seed: 0, colors: [enabled: false], formatters: [ExUnit.CLIFormatter, Facts])
defmodule LedgerTest do
  use ExUnit.Case
"""
    for i, t in enumerate(tests):
        body += f"  test \"{t.replace('_', ' ')} {i}\" do\n    IO.puts(\"{chat(rng, i)}\")\n    assert Enum.sum([{i}, {1 if i in (300,) else 0}]) == {i}\n  end\n"
    write(d, {"ledger_test.exs": body + "end\n"})
    log = run("elixir ledger_test.exs", d) + pack(d, 400)
    name, left, right = open(d / "out.txt").read().splitlines()
    corpus.add("exunit", "exunit", log, [[") " + name], ["left: ", left], ["right: ", right]], "an ExUnit formatter", held=True)


def behave(corpus):
    need("behave")
    d = corpus.dir("behave")
    feature = "Feature: ledger\n"
    for i, t in enumerate(names(271, 260)):
        feature += f"  Scenario: {t.replace('_', ' ')} {i}\n    Given a ledger of {i} entries\n    When an entry is added\n    Then it has {i + (2 if i in (130,) else 1)} entries\n"
    write(d, {"features/ledger.feature": feature, "features/steps/s.py": "from behave import *\n@given('a ledger of {n:d} entries')\ndef a(c, n):\n    c.n = n\n@when('an entry is added')\ndef b(c):\n    c.n += 1\n@then('it has {n:d} entries')\ndef e(c, n):\n    assert c.n == n, f'{c.n} entries, not {n}'\n"})
    log = run("behave --no-color --format pretty", d, ok=False) + pack(d, 400)
    run("behave --format json -o out.json", d)
    facts = []
    for el in json.load(open(d / "out.json"))[0]["elements"]:
        for s in el["steps"]:
            if s.get("result", {}).get("status") == "failed":
                m = s["result"]["error_message"]
                m = m if isinstance(m, str) else "\n".join(m)
                facts += [[first_line(m)]]
    corpus.add("behave", "behave", log, facts, "behave --format json", held=True)


def robot(corpus):
    need("robot")
    d = corpus.dir("robot")
    body = "*** Test Cases ***\n"
    for i, t in enumerate(names(281, 420)):
        body += f"{t.replace('_', ' ').title()} {i}\n    Log To Console    step {i} of {t}\n    Should Be Equal As Integers    {i}    {i + (1 if i in (205,) else 0)}    total of {t}\n"
    write(d, {"ledger.robot": body})
    log = run("robot --consolecolors off ledger.robot", d, ok=False) + pack(d, 100)
    facts = []
    for case in ET.parse(d / "output.xml").getroot().iter("test"):
        st = case.find("status")
        if st.get("status") == "FAIL":
            facts += [[first_line(st.text)]]
    corpus.add("robot", "robot", log, facts, "robot output.xml", held=True)


def tcl(corpus):
    need("tclsh")
    d = corpus.dir("tcltest")
    body = "package require tcltest\nnamespace import ::tcltest::*\nconfigure -verbose {pass body error line}\n"
    for i, t in enumerate(names(291, 700)):
        body += f"test {t}-{i} {{{t.replace('_', ' ')}}} -body {{ expr {{{i} + {1 if i in (350,) else 0}}} }} -result {i}\n"
    write(d, {"t.test": body + "cleanupTests\n"})
    log = run("tclsh t.test", d) + pack(d, 1100)
    # A second run compares results itself, and writes down those that differ.
    write(d, {"record.tcl": "package require tcltest\nset out [open out.txt w]\nrename ::tcltest::test ::tcltest::one\n"
                            "proc ::tcltest::test {name args} { set ::name $name; uplevel 1 [list ::tcltest::one $name {*}$args] }\n"
                            "::tcltest::customMatch exact {apply {{want got} { if {$want ne $got} { puts $::out $::name\\n$got\\n$want }; string equal $want $got }}}\nsource t.test\n"})
    run("tclsh record.tcl", d, ok=True)
    name, got, want = open(d / "out.txt").read().splitlines()
    corpus.add("tcltest", "tcltest", log, [[name, "FAILED"], [got], [want]], "what a test's comparison is given", held=True, ordered=True)


ALL = [go_test, go_panic, pytest, unittest, jest, mocha, node_test, vitest, cargo_test, ctest, gtest, catch2, maven, ruby, php, lua, bats, r, erlang, elixir, behave, robot, tcl]

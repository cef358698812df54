"""What the scripts of the corpus share: where logs go, and how lines are marked.

A log is what one real tool printed, both streams in order. Its decisive lines
are those that state a fact of the tool's structured output: a fact is a list of
texts that one line of the log must hold.
"""

import gzip
import json
import os
import pathlib
import platform
import random
import re
import shutil
import subprocess

MIN_BYTES, MIN_LINES, MAX_MARKED = 64 << 10, 1000, 2 << 10

CONTROLS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r")

NOUNS = """account address archive batch buffer cache catalog channel client cluster cursor digest
domain entry error event exception failure filter folder format gateway graph header index invoice
journal ledger limit loader locale mailbox matrix message metric monitor network node order packet
parser payload permit policy pool price profile queue quota record region report request response
retry route sample schema scope search segment sensor session shard signal snapshot socket status
stream symbol table tenant ticket timeout token topic trace tree update vector version warning
window worker zone""".split()
VERBS = """accept append apply attach build check clear close collect commit compare convert copy
count decode delete detach encode expand fetch filter find flush format handle insert join load
lock map match merge move normalize open pack parse pick push read reject release remove render
reset resolve restore rotate save scan send sort split start stop store swap sync trim unlock
update validate verify wrap write""".split()


class Skip(Exception):
    """A tool that is not there."""


class Corpus:
    def __init__(self, out, work):
        self.out, self.work = pathlib.Path(out), pathlib.Path(work)
        self.out.mkdir(parents=True, exist_ok=True)

    def dir(self, name):
        d = self.work / name
        shutil.rmtree(d, ignore_errors=True)
        d.mkdir(parents=True)
        return d

    def add(self, name, tool, log, facts, source, held=False, ordered=False):
        """Stores a log. The line of a fact is the first that states it: after that of the fact before it, if they are ordered."""
        if isinstance(log, str):
            log = log.encode()
        log = log.replace(os.path.expanduser("~").encode() + b"/", b"/home/user/").replace(platform.release().encode(), b"6.1.0-22-amd64")
        lines = log.split(b"\n")
        if len(log) < MIN_BYTES or len(lines) < MIN_LINES:
            raise ValueError(f"{name}: {len(log)} bytes, {len(lines)} lines are too few")
        plain, marked, size = [CONTROLS.sub(b"", l) for l in lines], [], 0
        for fact in facts:
            want = [f.encode() if isinstance(f, str) else f for f in fact]
            at = next((i for i, l in enumerate(plain) if i not in marked and not (ordered and marked and i < marked[-1]) and all(w in l for w in want)), None)
            if at is None:
                raise ValueError(f"{name}: no line has {fact}")
            marked.append(at)
            size += len(lines[at]) + 1
        if size > MAX_MARKED:
            raise ValueError(f"{name}: the decisive lines have {size} bytes, which is more than {MAX_MARKED}: let fewer things fail")
        if not marked:
            raise ValueError(f"{name}: nothing is marked")
        with open(self.out / f"{name}.log.gz", "wb") as f:
            f.write(gzip.compress(log, 9, mtime=0))
        entry = {"name": name, "tool": tool, "held_out": held, "marked_from": source,
                 "bytes": len(log), "lines": len(lines) - (log[-1:] == b"\n"), "decisive": sorted(i + 1 for i in marked)}
        (self.out / f"{name}.json").write_text(json.dumps(entry, indent=1) + "\n")
        print(f"{name}: {len(log)} bytes, {len(lines)} lines, {len(marked)} decisive of {size} bytes", flush=True)


def need(*tools):
    for t in tools:
        if not shutil.which(t):
            raise Skip(t)


def run(cmd, cwd, env=None, ok=None, apart=False, timeout=300):
    """Runs a tool and returns what it printed."""
    shell = isinstance(cmd, str)
    e = dict({k: v for k, v in os.environ.items() if k != "PIP_FIND_LINKS"}, CI="1", NO_COLOR="1", TERM="dumb", LC_ALL="C.UTF-8", **(env or {}))
    p = subprocess.run(cmd, cwd=cwd, shell=shell, env=e, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE if apart else subprocess.STDOUT, timeout=timeout)
    if ok is not None and (p.returncode == 0) != ok:
        raise ValueError(f"{cmd}: exit code {p.returncode}: {p.stdout[-2000:].decode(errors='replace')}{(p.stderr or b'')[-2000:].decode(errors='replace')}")
    return (p.stdout, p.stderr) if apart else p.stdout


def json_lines(out):
    """Returns what of an output is lines of JSON."""
    for line in out.splitlines():
        try:
            yield json.loads(line if line[:1] in (b"{", b"[") else b"")
        except ValueError:
            pass


def pack(d, n):
    """Packs n reports with tar, as the next step of a job does, and returns what it prints."""
    write(d, {f"reports/coverage/{name}.error.html": name for name in names(7, n)})
    return run("tar -cvzf reports.tar.gz reports", d, ok=True)


def write(d, files):
    for name, text in files.items():
        p = pathlib.Path(d) / name
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(text)


def names(seed, n):
    """Returns n different names."""
    rng = random.Random(seed)
    seen = []
    while len(seen) < n:
        name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
        if len(seen) > len(VERBS) * len(NOUNS) // 3:
            name += f"_{len(seen)}"
        if name not in seen:
            seen.append(name)
    return seen


def camel(name):
    return "".join(w.capitalize() for w in name.split("_"))


def first_line(text):
    return next((l.strip() for l in (text or "").splitlines() if l.strip()), "")

#!/usr/bin/env python3
"""make.py [OUT [PART…]] runs the real tools and writes their logs, with the
decisive lines marked, into OUT (evidence/testdata/corpus). Tools that are not
there are named and skipped; README.md says how to install them.
"""

import importlib
import pathlib
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import corpus


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = sys.argv[1] if len(sys.argv) > 1 else here.parent.parent / "evidence/testdata/corpus"
    only = set(sys.argv[2:])
    c = corpus.Corpus(out, "/tmp/corpus")
    bad = 0
    for module in ("compilers", "testers", "packages", "builders", "jobs", "traces"):
        for part in importlib.import_module(module).ALL:
            if only and part.__name__ not in only and module not in only:
                continue
            try:
                part(c)
            except corpus.Skip as missing:
                print(f"{part.__name__}: skipped, there is no {missing}")
            except Exception:
                traceback.print_exc()
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

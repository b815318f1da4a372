#!/usr/bin/env python3
"""Sum the JUnit files of a test run: what was skipped and why, what failed, and the closing line
`N passed, N failed, N skipped`. Exits 1 when anything failed or nothing ran. NAME-again.xml has what failed in NAME.xml and
ran once more (again.py): that result counts, and is named."""
import pathlib
import sys
import xml.etree.ElementTree as ET


def bad(case) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def key(case):
    return case.get("classname"), case.get("name")


def mended(path):
    """Tests of a file that passed when they ran again."""
    if not path.exists():
        return set()
    cases = list(ET.parse(path).iter("testcase"))
    return {key(c) for c in cases} - {key(c) for c in cases if bad(c) or c.find("skipped") is not None}


def main(folder: str) -> int:
    passed = failed = skipped = 0
    for f in sorted(pathlib.Path(folder).glob("*.xml")):
        if f.stem.endswith("-again"):
            continue
        again = mended(f.with_name(f.stem + "-again.xml"))
        for case in ET.parse(f).iter("testcase"):
            name = f"{f.stem}: {case.get('classname', '')} {case.get('name', '')}".replace("  ", " ")
            skip = case.find("skipped")
            if bad(case) and key(case) in again:
                passed += 1
                print("passed when run again", name)
            elif bad(case):
                failed += 1
                print("FAILED", name)
            elif skip is not None:
                skipped += 1
                print("skipped", name, "-", (skip.get("message") or "").strip())
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

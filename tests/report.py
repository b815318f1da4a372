#!/usr/bin/env python3
"""Sum the JUnit files of a test run: what was skipped and why, what failed, and the closing line
`N passed, N failed, N skipped`. Exits 1 when anything failed or nothing ran."""
import pathlib
import sys
import xml.etree.ElementTree as ET


def main(folder: str) -> int:
    passed = failed = skipped = 0
    for f in sorted(pathlib.Path(folder).glob("*.xml")):
        for case in ET.parse(f).iter("testcase"):
            name = f"{f.stem}: {case.get('classname', '')} {case.get('name', '')}".replace("  ", " ")
            skip = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
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

#!/usr/bin/env python3
"""The tests that failed in a JUnit file of pytest, one a line as pytest names them, if they are few: `./dev test` runs them
once more, alone. A machine under load can be late for one of two thousand tests; a mistake fails twice."""
import pathlib
import sys
import xml.etree.ElementTree as ET

FEW = 4


def failed(path):
    for case in ET.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            file, _, cls = case.get("classname", "").rpartition(".Test")
            path = pathlib.Path(*(file or case.get("classname")).split(".")).with_suffix(".py")
            yield "::".join([str(path), *(["Test" + cls] if file else []), case.get("name")])


def main(path):
    if not pathlib.Path(path).exists():
        return 1
    names = sorted(set(failed(path)))
    if not 0 < len(names) <= FEW:
        return 1
    print("\n".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

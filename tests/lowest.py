"""Prints what `make test-lowest` installs: the lowest stated version of every dependency of metacal and an extra.

torch is the tested one of constraints.txt, as are the tools that run the tests: ``python tests/lowest.py all``.
"""

import re
import sys
from importlib.metadata import requires
from pathlib import Path

STATED = re.compile(r"([\w-]+)(?:\[([\w,-]+)\])?(?:>=([\w.]+))?(?:; extra == ['\"](\w+)['\"])?")
HANDED_OVER = ("pandas", "polars")
"""Of the dev extra: users hand their objects to the library."""

AS_TESTED = ("torch", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")


def main(wanted: str) -> None:
    """Print a line a package: those that are required, and those of an extra (the metadata spells out nested ones)."""
    tested = (Path(__file__).parent.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    print(*AS_TESTED, *(line for line in tested if line.partition("==")[0] in AS_TESTED), sep="\n")
    for line in requires("metacal") or ():
        stated = STATED.fullmatch(line)
        if stated is None or (stated[1] != "metacal" and stated[3] is None):
            sys.exit(f"{line}: a requirement must have a lower bound and nothing else.")
        name, _, bound, extra = stated.groups()
        if name in HANDED_OVER or (extra in (None, wanted) and name not in ("metacal", "torch")):
            print(f"{name}=={bound}")


if __name__ == "__main__":
    main(sys.argv[1])

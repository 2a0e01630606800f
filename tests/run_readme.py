"""Runs the Python code of Markdown files as printed, with whatever metacal the interpreter finds; no test framework."""

import re
import sys
from pathlib import Path


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.S)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        found = blocks(Path(name))
        for block in found:
            exec(compile(block, name, "exec"), {})
        print(f"{name}: {len(found)} blocks ran.")

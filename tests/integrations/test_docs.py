"""The code of the integration pages runs as printed."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "integrations").glob("*.md"))
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("block", BLOCKS)
def test_code_runs_as_printed(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs", "exec"), {"__name__": "docs"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_starts_with_the_code_to_paste(page):
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if not line.startswith("<!--")]
    assert lines[0].startswith("# ")
    assert lines[2] == "```python"

"""What the pages say is there, is there: links lead somewhere, examples run, the front page stays short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "docs" / "results" / "README.md"])
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")


def anchors(page):
    """Of every heading, as the usual forges make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for path, anchor in LINK.findall(page.read_text()):
        if path.startswith(("http:", "https:")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        if anchor and target.suffix == ".md":
            assert anchor[1:] in anchors(target), f"{page.name}: {path}{anchor}"


def test_the_front_page_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_python_example_of_the_front_page_runs(tmp_path, monkeypatch, data_dir, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 15
    marked = 'dataset="mnist", '
    assert marked in code
    exec(code.replace(marked, f"{marked}out_dir={str(tmp_path)!r}, data_dir={str(data_dir)!r}, "), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    length, spread = printed[3].split()
    assert int(length) < 500
    assert 0.0145 < float(spread) < 0.0155

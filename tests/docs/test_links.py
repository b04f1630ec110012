"""Links of all pages lead somewhere, and every page can be reached from the list of its folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/**/*.md")])
FOLDERS = sorted(page.parent for page in DOCS.rglob("index.md"))

_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(rf"{_BLOCK.pattern}|`[^`\n]+`", _BLOCK.flags)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
_TOCTREE = re.compile(r"^```{toctree}\n(?::.*\n)*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def name(page):
    return str(page.relative_to(ROOT))


def anchors(page):
    """Anchors of a page's headings, as GitHub and myst-parser make them."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings]
    return {each.replace(" ", "-") for each in words}


def broken_links(page):
    """Links of a page to files or headings that are not there."""
    found = _LINK.findall(_CODE.sub("", page.read_text()))
    for path, anchor in found:
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{path}#{anchor}" if anchor else path


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    assert list(broken_links(page)) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `b`\n[a](#one-b) [b](page.md) [c](none.md) [d](page.md#two) `[e](f)`")
    assert list(broken_links(page)) == ["none.md", "page.md#two"]


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_every_page_is_in_the_list_of_its_folder(folder):
    index = (folder / "index.md").read_text()
    below = {page.stem for page in folder.glob("*.md")} - {"index"}
    below |= {f"{page.parent.name}/index" for page in folder.glob("*/index.md")}
    listed = _TOCTREE.search(index)[1].split()
    assert sorted(listed) == sorted(below)
    assert below <= {path.removesuffix(".md") for path, _ in _LINK.findall(index)}

"""The pictures of docs/gallery: `python docs/figures/gallery.py [PAGE ...]`, in about a minute.

Runs the code of each page in a folder of its own, and takes the picture that the page saves.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "gallery"
FOLDER = Path(__file__).with_suffix("")
sys.path.insert(0, str(ROOT / "tests"))

from helpers.doc_pages import run_page  # noqa: E402


def draw(page: Path) -> None:
    """Run a page, and keep its picture."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_page(page)
        shutil.copy(Path(folder) / f"{page.stem}.png", FOLDER)
        os.chdir(ROOT)


if __name__ == "__main__":
    mpl.use("agg")
    for name in sys.argv[1:] or sorted(page.stem for page in PAGES.glob("*.md")):
        if name != "index":
            draw(PAGES / f"{name}.md")

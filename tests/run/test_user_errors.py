"""Errors of user code in real workers: tried again, and then only that worker is retired."""

import resource
from pathlib import Path

import numpy as np
import pytest

import quorate
from quorate.errors import ExcludedShardsWarning, NotANumberError, WorkerFailedError
from quorate.journal import JournalReader, WorkerEvent
from quorate.models import from_functions

N_ROWS = 120


def log_prior(theta):
    return float(-0.5 * np.sum(theta**2) / 100)


def log_likelihood(theta, shard):
    return float(-0.5 * np.sum((shard["z"] - theta) ** 2))


def is_first(marker):
    """Whether nobody has asked before; a file remembers, for all processes."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Once:
    """A log-likelihood that raises once, some way into the run: a file remembers."""

    def __init__(self, marker, after):
        self.marker, self.after, self.n = marker, after, 0

    def __call__(self, theta, shard):
        self.n += 1
        if self.n > self.after and is_first(self.marker):
            raise OSError("the disk was away for a moment")
        return log_likelihood(theta, shard)


class OutOfMemory:
    """Code that lacks memory in the first process that runs it: a file remembers."""

    def __init__(self, marker):
        self.marker, self.lacks = marker, None

    def __call__(self, theta, shard):
        value = log_likelihood(theta, shard)
        if self.lacks is None:
            self.lacks = is_first(self.marker)
        if self.lacks:
            limit = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (memory_now() + 2**29, limit))  # ulimit -v
            bytearray(2**31)
        return value


def memory_now():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


class Raises:
    """Raises on the shard that holds row 7."""

    def __init__(self, error):
        self.error = error

    def __call__(self, theta, shard):
        if 7 in shard["row"]:
            raise self.error
        return log_likelihood(theta, shard)


@pytest.fixture
def rows(seed):
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(N_ROWS, 2))
    return {"z": z, "row": np.arange(N_ROWS)}


def sample(likelihood, rows, run, **options):
    options = {"workers": 4, "draws": 300, "scheme": "grouped", "check": False, **options}
    model = from_functions(log_prior, likelihood, 2)
    return quorate.sample(model, rows, run_dir=run, progress=False, **options)


def happened(run):
    """What happened to workers, by the journal: words and workers."""
    with JournalReader(run) as reader:
        events = [record for record in reader.records() if isinstance(record, WorkerEvent)]
    return [(event.what, event.worker) for event in events], [event.text for event in events]


@pytest.mark.parametrize(
    ("options", "after"), [({"scheme": "cmc"}, 200), ({"method": "exact"}, 200)]
)
def test_an_error_that_does_not_come_back_costs_nothing(options, after, rows, tmp_path):
    result = sample(Once(tmp_path / "marker", after), rows, tmp_path / "run", **options)
    whole = sample(log_likelihood, rows, tmp_path / "whole", **options)
    np.testing.assert_array_equal(result.unconstrained, whole.unconstrained)
    events, (text, *_) = happened(tmp_path / "run")
    words = [what for what, _ in events]
    if "method" in options:  # another holder may have answered before the restart
        words = [*words, "restarted"][:2]
    assert words == ["failed", "restarted"]
    assert "away for a moment" in text


@pytest.mark.parametrize("method", ["merge", "exact"])
def test_a_worker_without_memory_is_retired_and_the_others_take_over(method, rows, tmp_path):
    options = {"method": method, "engine": quorate.Processes(restarts=0)}
    result = sample(OutOfMemory(tmp_path / "marker"), rows, tmp_path / "run", **options)
    assert result.stopped == "done"
    ((failed, first), (retired, second)), texts = happened(tmp_path / "run")
    assert (failed, retired) == ("failed", "retired")
    assert first == second
    assert "MemoryError" in texts[0]


@pytest.mark.parametrize("options", [{"scheme": "cmc"}, {"method": "exact"}])
def test_a_lack_of_memory_that_passes_costs_nothing(options, rows, tmp_path):
    result = sample(OutOfMemory(tmp_path / "marker"), rows, tmp_path / "run", **options)
    whole = sample(log_likelihood, rows, tmp_path / "whole", **options)
    np.testing.assert_array_equal(result.unconstrained, whole.unconstrained)
    events, texts = happened(tmp_path / "run")
    assert {what for what, _ in events} <= {"failed", "restarted"}
    assert events[0][0] == "failed"
    assert "MemoryError" in texts[0]


def test_neighbours_in_a_process_are_not_retired_for_one_of_them(rows, tmp_path):
    engine = quorate.Processes(1, restarts=2)
    options = {"scheme": "cmc", "engine": engine, "on_lost_shard": "exclude"}
    with pytest.warns(ExcludedShardsWarning):
        result = sample(Raises(OSError("no such disk")), rows, tmp_path / "run", **options)
    assert result.stopped == "done"
    words, _ = happened(tmp_path / "run")
    [retired] = [worker for what, worker in words if what == "retired"]
    assert result.excluded == (retired,)


def test_a_refusal_ends_the_run_at_once_with_a_way_out(rows, tmp_path):
    error = NotANumberError("The log density is nan.")
    with pytest.raises(WorkerFailedError, match=r"resume\(.*run', model\) continues") as caught:
        sample(Raises(error), rows, tmp_path / "run", scheme="cmc")
    assert caught.value.is_bad_input
    assert [what for what, _ in happened(tmp_path / "run")[0]] == ["failed"]


def test_an_error_that_comes_back_everywhere_ends_the_run_in_words(rows, tmp_path):
    with pytest.raises(WorkerFailedError, match=r"raised OSError: no such disk") as caught:
        sample(Raises(OSError("no such disk")), rows, tmp_path / "run")
    assert not caught.value.is_bad_input
    assert str(tmp_path / "run") in str(caught.value)

import tracemalloc

import numpy as np

import quorate
from helpers import journals
from helpers.journals import block
from quorate.models import linear
from quorate.protocol import columns
from quorate.protocol.columns import OnDemand
from quorate.run.draws_on_disk import DrawFile
from quorate.run.history import History


def test_a_file_of_numbers_has_no_name_and_gives_back_what_was_written(tmp_path):
    file = DrawFile(tmp_path)
    file.write(0, np.arange(5.0))
    file.write(100, np.arange(7.0))
    first = file.read(0, 5)
    file.write(5000, np.ones(2000))
    np.testing.assert_array_equal(file.read(5000, 2000), 1)
    np.testing.assert_array_equal(file.read(100, 7), np.arange(7))
    np.testing.assert_array_equal(first, np.arange(5))
    assert not list(tmp_path.iterdir())


def test_a_history_needs_little_memory_for_many_draws(tmp_path, monkeypatch):
    n_blocks, n = 40, 6000
    written = (
        block(i, i % 2, n=n, first=n * (i // 2), shards=(i % 2,), chain=0) for i in range(n_blocks)
    )
    journals.write(tmp_path, list(written), scheme="cmc", draws=n * n_blocks // 2)
    all_draws = n_blocks * n * 2 * 8  # bytes
    monkeypatch.setattr(columns, "IN_MEMORY", 2**13)
    with History(tmp_path) as history:
        tracemalloc.start()
        try:
            history.read()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < all_draws / 10
        assert [len(draws) for _, draws in history.shard_draws()] == [n * n_blocks // 2] * 2


def test_a_run_whose_draws_are_on_disk_has_the_same_draws(tmp_path, monkeypatch, rng):
    rows = {"X": rng.standard_normal((60, 2)), "y": rng.standard_normal(60)}

    def run(name):
        return quorate.sample(
            linear(2), rows, workers=2, draws=200, method="merge", scheme="cmc", seed=3,
            sampler="ellipse", run_dir=tmp_path / name, progress=False,
        )  # fmt: skip

    plain = run("plain")
    monkeypatch.setattr(columns, "IN_MEMORY", 100)
    on_disk = run("on-disk")
    assert isinstance(on_disk.shard_draws, OnDemand)
    np.testing.assert_array_equal(on_disk.unconstrained, plain.unconstrained)
    assert on_disk.summary_rows() == plain.summary_rows()
    assert on_disk.verdict.verdict == plain.verdict.verdict
    assert {path.name for path in (tmp_path / "on-disk").iterdir()} == {
        path.name for path in (tmp_path / "plain").iterdir()
    }
    loaded = quorate.load(tmp_path / "on-disk")
    np.testing.assert_array_equal(loaded.unconstrained, plain.unconstrained)

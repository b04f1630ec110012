import numpy as np
import pytest

from quorate.protocol import columns as columns_module
from quorate.protocol.columns import Columns, OnDemand
from quorate.protocol.ledger import Ledger, Merging


class Line:
    """A shelf in memory, which remembers what it was asked for."""

    def __init__(self, size=10_000, largest=np.inf):
        self.numbers, self.largest = np.full(size, np.nan), largest

    def write(self, first, numbers):
        if first + len(numbers) > self.largest:
            raise OSError(28, "No space left on device")
        assert np.isnan(self.numbers[first : first + len(numbers)]).all(), "written twice"
        self.numbers[first : first + len(numbers)] = numbers

    def read(self, first, n):
        view = self.numbers[first : first + n]
        view.flags.writeable = False
        return view


@pytest.fixture
def small_memory(monkeypatch):
    monkeypatch.setattr(columns_module, "IN_MEMORY", 50)


@pytest.mark.parametrize("largest", [np.inf, 300, 0], ids=["room", "full", "read-only"])
@pytest.mark.usefixtures("small_memory")
def test_rows_are_those_that_were_added_wherever_they_lie(rng, largest):
    columns, added, read = Columns(Line(largest=largest)), {0: [], 1: []}, []
    for i in range(40):
        key, rows = i % 3 // 2, rng.standard_normal((1 + i % 4, 3))
        added[key].append(rows)
        columns.append(key, rows)
        if i % 5 == 4:
            read.append((columns.rows(key), np.concatenate(added[key])))
    assert columns.is_shelved == (largest > 0)
    for found, expected in [*read, *((columns.rows(k), np.concatenate(added[k])) for k in (0, 1))]:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("weights", ["draws", "shrunk"])
@pytest.mark.parametrize("pairing", ["paper", "all"])
@pytest.mark.parametrize("n_chains", [1, 3])
def test_draws_on_a_shelf_merge_to_the_same_bits(rng, monkeypatch, n_chains, pairing, weights):
    cells, merging = [(0, 1), (2,)], Merging(pairing=pairing, weights=weights, seed=3)
    in_memory, shelved = Ledger(cells, merging), Ledger(cells, merging)
    for i in range(60):
        cell = i % 2
        batch = rng.standard_normal((1 + i % 7, len(cells[cell]), 2))
        in_memory.add(cell, batch, i // 2 % n_chains)
    monkeypatch.setattr(columns_module, "IN_MEMORY", 50)
    shelved.keep_on(Line)
    for cell in (0, 1):
        batches, stretches = in_memory.batches(cell), in_memory._stretches[cell]
        ends = [*(stretch.first for stretch in stretches[1:]), len(batches)]
        for (chain, first), end in zip(stretches, ends, strict=True):
            shelved.add(cell, batches[first:end], chain)
    assert isinstance(shelved.shard_draws(), OnDemand)
    for mine, theirs in zip(shelved.shard_draws(), in_memory.shard_draws(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(shelved.weights(), in_memory.weights())
    n = in_memory.n_offered
    monkeypatch.setattr("quorate.protocol.ledger._AT_ONCE", 0)
    monkeypatch.setattr("quorate.protocol.ledger._FEWEST_ROWS", 16)
    np.testing.assert_array_equal(shelved.first_draws(n), in_memory.first_draws(n))
    np.testing.assert_array_equal(shelved.global_draws(), in_memory.global_draws())


@pytest.mark.usefixtures("small_memory")
def test_draws_of_a_shard_stay_as_they_were_when_more_arrive(rng):
    ledger = Ledger([(0,), (1,)])
    ledger.keep_on(Line)
    first = rng.standard_normal((40, 1, 2))
    ledger.add(0, first)
    before = ledger.shard_draws()
    ledger.add(0, rng.standard_normal((40, 1, 2)), chain=1)
    np.testing.assert_array_equal(before[0], first[:, 0])
    assert [len(draws) for draws in before] == [40, 0]
    assert [len(draws) for draws in ledger.shard_draws()] == [80, 0]

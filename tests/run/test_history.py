"""Histories of hand-made journals, and CMC in virtual time."""

import numpy as np
import pytest

from helpers import journals
from helpers.journals import a_run, block, coded, happened, task
from quorate.errors import BadInputError
from quorate.journal import Checked, Excluded, Journal, PriorRestored, Resumed
from quorate.report.counterfactual import Pace, cmc_releases, paces
from quorate.run.history import History


def told(folder):
    with History(folder) as history:
        history.read()
    return history


def test_blocks_as_arrays(tmp_path):
    history = told(journals.write(tmp_path, a_run()))
    blocks = history.blocks()
    assert len(blocks) == 10
    assert blocks.cells == ((0, 1),)
    np.testing.assert_array_equal(blocks.of(1).ends, [2.5, 4.5])
    np.testing.assert_array_equal(blocks.of(1).begins, [0.5, 2.5])
    np.testing.assert_array_equal(blocks.of(0).first_draws, 4 * np.arange(8))
    assert set(blocks.n_bytes) == {4 * 2 * 2 * 8}
    assert set(blocks.n_floats) == {16}
    assert blocks.n_global[-1] == history.n_global == 40
    assert history.stopped == "done"
    assert history.gone() == {1: 5.0}
    assert [event.word for event in history.events] == ["started", "lost", "restarted", "finished"]


def test_l_of_t_is_that_of_the_scheme(tmp_path):
    records = [
        block(1.0, 0, n=3, shards=(0,), chain=0),
        block(2.0, 1, n=2, shards=(1,), chain=0),
        block(3.0, 1, n=2, first=2, shards=(1,), chain=0),
    ]
    history = told(journals.write(tmp_path, records, scheme="cmc"))
    times, counts = history.blocks().releases
    np.testing.assert_array_equal(times, [2.0, 3.0])
    np.testing.assert_array_equal(counts, [2, 3])
    assert [len(draws) for draws in dict(history.shard_draws()).values()] == [3, 4]
    np.testing.assert_array_equal(dict(history.shard_draws())[0], records[0].payload[:, 0])


def test_a_task_given_late_is_begun_late(tmp_path):
    records = [task(0.2, 0, 0, 4), block(1.0, 0), task(5.0, 0, 4, 4), block(6.0, 0, first=4)]
    blocks = told(journals.write(tmp_path, records)).blocks()
    np.testing.assert_array_equal(blocks.begins, [0.2, 5.0])


def test_a_task_given_again_counts_from_then(tmp_path):
    records = [
        task(0.0, 0, 0, 4),
        task(0.0, 0, 4, 4),
        block(1.0, 0),
        happened(2.0, "lost", 0),
        task(9.0, 0, 4, 4),
        block(10.0, 0, first=4, attempt=1),
    ]
    history = told(journals.write(tmp_path, records))
    np.testing.assert_array_equal(history.blocks().begins, [0.0, 9.0])
    assert history.gone() == {}  # it has come back


def test_a_history_grows(tmp_path):
    with (
        Journal.create(tmp_path, journals.configuration()) as journal,
        History(tmp_path) as history,
    ):
        history.read()
        assert len(history.blocks()) == 0
        assert history.global_draws().shape == (0, 2)
        journal.append([block(1.0, 0)])
        history.read()
        assert len(history.blocks()) == 1
        assert history.stopped is None
        journal.append([Resumed(1.0, journals.settings_of(draws=99))])
        history.read()
        assert history.settings.draws == 99


def test_coded_runs_have_no_draws_of_shards(tmp_path):
    records = [coded(1.0, 0), coded(2.0, 1)]
    history = told(
        journals.write(tmp_path, records, scheme="coded", precision="estimated", cov_ridge=0.1)
    )
    assert not history.sends_draws
    assert history.n_global == 4
    assert dict(history.shard_draws()) == {}


def test_settings_of_another_version_are_refused(tmp_path):
    configuration = journals.configuration()
    configuration["settings"]["warp"] = 9
    Journal.create(tmp_path, configuration).close()
    with pytest.raises(BadInputError, match="later one"):
        History(tmp_path)


def test_draws_without_shards_that_were_left_out(tmp_path):
    """Shard 1 is left out after 4 of its draws, and is there again when the run is resumed."""
    records = [
        block(1.0, 1, n=4, shards=(1,), chain=0),
        block(2.0, 0, n=20, shards=(0,), chain=0),
        Excluded(3.0, (1,)),
        block(4.0, 0, n=20, first=20, shards=(0,), chain=0),
    ]
    folder = journals.write(tmp_path, records, scheme="cmc", pairing="paper", weights="draws")
    with History(folder) as history, Journal.open(folder) as journal:
        history.read()
        assert history.excluded == (1,)
        assert history.prior_restored is None
        times, counts = history.blocks().releases
        np.testing.assert_array_equal(times, [2.0, 4.0])
        np.testing.assert_array_equal(counts, [20, 40])
        alone = np.concatenate([records[1].payload, records[3].payload])[:, 0]
        np.testing.assert_allclose(history.global_draws(), alone)
        again = journals.settings_of(scheme="cmc")
        journal.append([PriorRestored(4.0, 0.5, True)])
        history.read()
        assert history.prior_restored
        journal.append([Resumed(5.0, again)])
        journal.append([block(6.0, 1, n=30, first=4, shards=(1,), chain=0)])
        history.read()
        assert history.excluded == ()
        assert history.prior_restored is None
        assert history.n_global == 34
        times, counts = history.blocks().releases
        np.testing.assert_array_equal(times, [2.0, 6.0])
        np.testing.assert_array_equal(counts, [4, 34])


def test_a_check_is_not_part_of_the_time_of_the_draws(tmp_path):
    history = told(journals.write(tmp_path, [block(1.0, 0), Checked(9.0, "good")]))
    assert history.seconds == 9.0  # the run itself said so at its end
    with Journal.open(tmp_path) as journal:
        journal.append([Checked(20.0, "good")])
    assert told(tmp_path).seconds == 9.0


# ---------------------------------------------------------------- CMC in virtual time


def test_under_cmc_a_worker_draws_one_shard_only(tmp_path):
    history = told(journals.write(tmp_path, a_run()))
    first, second = paces(history)
    # 0.5 s until there is a task; then 4 draws of 2 shards took 0.5 s once, and 1 s each after.
    np.testing.assert_allclose(first.times, 0.75 + 0.5 * np.arange(8))
    np.testing.assert_allclose(second.times, [1.5, 2.5])
    counts = np.array([1, 4, 5, 8, 9, 32, 40])
    np.testing.assert_allclose(first.when(counts), [0.75, 0.75, 1.25, 1.25, 1.75, 4.25, 5.25])
    np.testing.assert_allclose(second.when(counts)[:4], [1.5, 1.5, 2.5, 2.5])
    assert np.all(np.isinf(second.when(counts)[4:]))
    np.testing.assert_allclose(cmc_releases([first, second], counts[:4]), [1.5, 1.5, 2.5, 2.5])


def test_a_worker_repeats_its_blocks_but_not_its_warm_up(tmp_path):
    records = [
        task(0.0, 0, 0, 9),
        block(10.0, 0, n=1, shards=(0,), chain=0),
        block(11.0, 0, n=2, first=1, shards=(0,), chain=0),
        block(14.0, 0, n=3, first=3, shards=(0,), chain=0),
    ]
    history = told(journals.write(tmp_path, records, scheme="cmc"))
    pace = Pace.of(history.blocks().of(0))
    counts = np.array([6, 7, 8, 9, 11, 12, 16])
    np.testing.assert_allclose(pace.when(counts), [14, 15, 15, 18, 18, 19, 22])


def test_one_block_is_enough_to_go_on(tmp_path):
    history = told(journals.write(tmp_path, [block(2.0, 0, n=4)]))
    one, none = paces(history)
    np.testing.assert_allclose(one.when(np.array([4, 5, 12])), [1.0, 2.0, 3.0])
    assert np.all(np.isinf(none.when(np.array([1, 2]))))


def test_time_away_is_lost_time_without_work_is_not(tmp_path):
    records = [
        task(0.0, 0, 0, 4),
        block(2.0, 0),
        task(5.0, 0, 4, 4),
        block(7.0, 0, first=4),
        happened(7.0, "lost", 0),
        task(10.0, 0, 8, 4),
        block(12.0, 0, first=8, attempt=1),
    ]
    pace = paces(told(journals.write(tmp_path, records)))[0]
    np.testing.assert_allclose(pace.times, [1.0, 2.0, 2.0 + 3.0 + 1.0])


def test_warm_up_of_further_chains_is_not_for_cmc(tmp_path):
    records = [
        block(3.0, 0, n=2, shards=(0,), chain=0),
        block(8.0, 0, n=2, shards=(1,), chain=0),
        block(9.0, 0, n=2, first=2, shards=(1,), chain=0),
    ]
    blocks = told(journals.write(tmp_path, records, scheme="adaptive")).blocks()
    pace = Pace.of(blocks)
    np.testing.assert_allclose(pace.times, [3.0, 4.0])
    np.testing.assert_array_equal(pace.n_draws, [2, 4])


def test_a_worker_that_moved_is_not_gone_and_begins_anew(tmp_path):
    records = [
        task(0.5, 0, 0, 40),
        block(1.0, 0, n=4),
        happened(2.0, "moved", 0, "its node 10.0.0.2 is being drained"),
        task(3.0, 0, 4, 36),
        block(4.0, 0, n=4, first=4, attempt=1),
    ]
    history = told(journals.write(tmp_path, records))
    assert history.gone() == {}
    np.testing.assert_array_equal(history.blocks().begins, [0.5, 3.0])

"""Local parameters of real runs: whoever computes them, they are the same."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import quorate
from helpers.one_way import Nested, OneWay, planes, rows, table
from helpers.processes import KillsAWorker, MeanModel, killed_when_it_speaks, workers_of
from quorate.data.write import ShardSet
from quorate.errors import BadInputError, FewGroupsWarning, QuorateWarning, WorkerFailedError
from quorate.results.group_names import codes_of
from quorate.results.local import DEFAULT_POINTS
from quorate.results.local_tree import long_table
from quorate.results.saved_local import FILE
from quorate.results.some_draws import scattered
from quorate.run.few_groups import FEWEST
from quorate.run.local import LocalRun, opened

WORKERS, DRAWS = 4, 512


def sample(data, run, model=None, **options):
    options = {"workers": WORKERS, "draws": DRAWS, "check": False, "progress": False, **options}
    return quorate.sample(model or OneWay(), data, run_dir=run, **options)


@pytest.fixture(scope="module")
def data(seed):
    return rows(np.random.default_rng([seed, 16]))


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory):
    return sample(table(data), tmp_path_factory.mktemp("local") / "run")


@pytest.fixture
def result(fitted):
    """The result, without summaries of other tests."""
    (Path(fitted.run_dir) / FILE).unlink(missing_ok=True)
    return fitted


def summarised(result):
    """The draws that a summary is of, if nobody says how many."""
    n = max(DEFAULT_POINTS, result.local.work.affordable)
    return result.unconstrained[scattered(result.n_draws, n)]


@pytest.fixture(scope="module")
def expected(fitted, data):
    """Moments of u in closed form, from all rows in one shard: mean, sd and skewness, (m,)."""
    points = summarised(fitted)
    _, means, variances = OneWay().local(points, data)
    mean = means.mean(axis=0)
    gaps = means - mean
    var = (gaps**2 + variances).mean(axis=0)
    return mean, np.sqrt(var), (gaps**3 + 3 * gaps * variances).mean(axis=0) / var**1.5


def with_model(result, model):
    """The result with another model, as if nobody had asked for local parameters yet."""
    return replace(result, model=model, local_work=LocalRun(Path(result.run_dir), model))


def assert_as_expected(summary, expected):
    np.testing.assert_allclose(summary["mean"], expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(summary["sd"], expected[1], rtol=1e-9)


# ---------------------------------------------------------------- summaries


def test_summaries_are_those_of_all_rows_in_one_shard(result, expected):
    summary = result.local.summary()
    assert_as_expected(summary, expected)
    assert list(summary.columns) == ["mean", "sd", "3%", "97%"]
    assert summary.index.names == ["plane", "parameter"]
    mean, sd, skewness = expected
    for column, z in (("3%", -1.8807936), ("97%", 1.8807936)):
        quantiles = mean + sd * (z + (z**2 - 1) / 6 * skewness)
        np.testing.assert_allclose(summary[column], quantiles, atol=1e-6)
    assert summary.loc[("N003", "Intercept"), "mean"] == pytest.approx(mean[3])


def test_summaries_are_read_from_the_folder_the_second_time(result):
    first = result.local.summary()
    folder = Path(result.run_dir)
    assert (folder / FILE).is_file()
    shards = folder / "shards"
    shards.rename(folder / "elsewhere")  # nobody can be asked now
    try:
        again = result.local.summary(interval=0.5)
        others = (result.local, with_model(result, OneWay()).local)
        for ask in [lambda of=of: of.summary(points=50) for of in others]:
            with pytest.raises(
                BadInputError, match=f"{folder} has no folder `shards`. Put it back"
            ):
                ask()
        with pytest.raises(BadInputError, match="has no folder `shards`"):
            quorate.resume(folder, progress=False)
    finally:
        (folder / "elsewhere").rename(shards)
    np.testing.assert_array_equal(again["mean"], first["mean"])
    assert list(again.columns) == ["mean", "sd", "25%", "75%"]
    assert np.all(again["75%"] < first["97%"])


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 9}, {"engine": "process"}])
def test_any_number_of_workers_gives_the_same_bits(options, result):
    first = result.local.summary()
    (Path(result.run_dir) / FILE).unlink()
    again = result.local.summary(**options)
    np.testing.assert_array_equal(again, first)


def test_nobody_is_started_without_work(result):
    """One group is in one shard, which two workers hold; its 512 draws are four pieces."""
    seen = set()
    result.local.draws(["N001"], progress=lambda *_: seen.update(workers_of(os.getpid())))
    assert 1 <= len(seen) <= 2
    with pytest.raises(BadInputError, match="at least 1, not 0"):
        result.local.draws(["N001"], workers=0)


def test_fewer_processes_than_workers(result, expected):
    assert_as_expected(result.local.summary(engine=quorate.Processes(2)), expected)


def test_a_run_is_opened_again_after_a_resume(result, data, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(result.run_dir, run)
    before = opened(run)
    np.testing.assert_array_equal(before.points, result.unconstrained)
    first = before.summary()
    more = quorate.resume(run, draws=2 * DRAWS, progress=False, check=False)
    later = more.local.summary()  # what is in the folder is not of these draws
    assert not np.array_equal(later, first)
    np.testing.assert_array_equal(opened(run).summary(), later)
    points = summarised(more)
    means = OneWay().local(points, data)[1].mean(axis=0)
    np.testing.assert_allclose(later["mean"], means, atol=1e-10)


def test_groups_of_excluded_shards_are_left_out(result):
    work = LocalRun(Path(result.run_dir), result.model, excluded=(1,))
    out = np.unique(ShardSet.open(Path(result.run_dir) / "shards").shard(1)["group"])
    local = replace(result, local_work=work).local
    left = set(local.summary().index.get_level_values("plane"))
    assert left == set(planes(range(30))) - set(planes(out))
    with pytest.raises(BadInputError, match=f"codes {out[0]} .* Ask for other groups"):
        local.draws(planes(out[:1]))


def test_a_merge_has_local_parameters_too(data, tmp_path):
    with pytest.warns(FewGroupsWarning, match=r"only 15 groups.*below about 200.*method='exact'"):
        result = sample(table(data), tmp_path / "run", method="merge", draws=300, workers=2)
    points = summarised(result)
    means = OneWay().local(points, data)[1].mean(axis=0)
    np.testing.assert_allclose(result.local.summary()["mean"], means, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(opened(tmp_path / "run").points, result.unconstrained)
    drawn = result.local.draws(["N001"], 40)
    assert drawn.sizes["chain"] == result.posterior["posterior"].sizes["chain"] == 4
    joint = result.local.joint(["N001"], 40)
    np.testing.assert_array_equal(
        joint.numbers.reshape(4, -1), result.posterior["sample_stats/row"].sel(draw=drawn["draw"])
    )
    np.testing.assert_array_equal(joint.points, result.laid_out[joint.numbers])
    again = opened(tmp_path / "run").joint(["N001"], 40)
    np.testing.assert_array_equal(again.points, joint.points)
    for (_, one), (_, other) in zip(joint.levels, again.levels, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_merge_with_many_groups_is_not_warned_of(tmp_path, rng):
    many = rows(rng, n_groups=2 * FEWEST, sizes=(1, 3))
    sample(
        table(many), tmp_path / "run", method="merge", draws=100, workers=2
    )  # warnings are errors


# ---------------------------------------------------------------- draws


def test_draws_are_joint_with_those_of_the_global_parameters(result, data):
    groups = [7, 3, 21]
    found = result.local.draws(planes(groups))
    posterior = result.posterior["posterior"]
    assert found["r_plane"].dims == ("chain", "draw", "group", "parameter")
    for axis in ("chain", "draw"):
        np.testing.assert_array_equal(found[axis], posterior[axis])
    np.testing.assert_array_equal(found["group"], ["N003", "N007", "N021"])
    one = result.local.draws(["N003"], n=64)
    same = found.sel(group=["N003"], draw=one["draw"])
    np.testing.assert_array_equal(one["r_plane"], same["r_plane"])
    assert one.sizes["chain"] * one.sizes["draw"] >= 64
    # what is left of a draw, given the global parameters, is standard normal
    _, means, variances = OneWay().local(result.unconstrained, data)
    order, at = result.chain_rows, sorted(groups)
    left = (found["r_plane"].values[..., 0] - means[order][..., at]) / np.sqrt(
        variances[order][..., at]
    )
    n = left.size
    assert abs(left.mean()) < 5 / np.sqrt(n)  # false alarm: 6e-7
    assert abs((left**2).mean() - 1) < 5.2 * np.sqrt(2 / n)  # about 1e-6 with chi-square's tail


def test_two_levels(data, tmp_path):
    result = sample(table(data), tmp_path / "run", Nested(), workers=3, draws=256)
    local = result.local
    points = summarised(result)
    direct = Nested().local_moments(points, data)
    parts = {"plane": sorted(set(table(data)["plane"])), "plane:part": pairs(data)}
    for level, names in parts.items():
        summary, moments = local.summary(level), direct[level]
        means = moments.centres + moments.sums[0] / len(points)
        np.testing.assert_allclose(summary["mean"], means.ravel(), rtol=1e-8, atol=1e-10)
        np.testing.assert_array_equal(local.dataset(level)["group"], names)
    draws = local.draws(["N004"], 32)
    within = [name for name in pairs(data) if name.startswith("N004:")]
    np.testing.assert_array_equal(draws["inner"], within)
    assert draws["r_plane:part"].dims == ("chain", "draw", "inner", "inner_parameter")
    rows = long_table(draws)
    for level, of_level in rows.groupby("level"):
        np.testing.assert_allclose(np.sort(of_level["value"]), np.sort(draws[f"r_{level}"], None))
    assert set(rows["level"]) == set(parts)
    assert set(rows["group"]) == {"N004", *within}
    with pytest.raises(BadInputError, match="The levels are plane, plane:part"):
        local.summary("county")


def pairs(data):
    """Labels of the groups within groups."""
    both = zip(planes(data["group"]), data["part"], strict=True)
    return sorted({f"{plane}:{part}" for plane, part in both})


# ---------------------------------------------------------------- what is refused


def test_unknown_groups_are_refused_by_name(result):
    with pytest.raises(BadInputError, match=r"plane has no group 'N02x'.* ones are 'N02\d', '"):
        result.local.draws(["N02x", "N005"])
    with pytest.raises(BadInputError, match="at least one group"):
        result.local.draws([])
    with pytest.raises(BadInputError, match="not 0"):
        result.local.draws(["N001"], n=0)
    with pytest.raises(BadInputError, match=r"interval.*94 %"):
        result.local.summary(interval=94)


def test_one_close_group_is_one():
    with pytest.raises(BadInputError, match=r"The only one is 'a'\.$"):
        codes_of(np.array(["a"]), ["xyz"], "plane")
    with pytest.raises(BadInputError, match=r"A close one is 'abc'\.$"):
        codes_of(np.array(["abc", "xyz"]), ["abd"], "plane")


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda local: local.draws(5), "plane has no group '5'"),
        (lambda local: local.draws(None), "at least one group"),
        (lambda local: local.draws([("N001", "Intercept")]), "is no label of a group"),
        (lambda local: local.draws(["N001"], n="10"), "whole number.*not '10'"),
        (lambda local: local.draws(["N001"], n=1.5), "whole number.*not 1.5"),
        (lambda local: local.draws(["N001"], n=9, workers="x"), "workers must be a whole.*'x'"),
        (lambda local: local.summary(points=1.5), "whole number.*not 1.5"),
        (lambda local: local.summary(points="10"), "whole number.*not '10'"),
        (lambda local: local.summary(points=1), "points must be at least 20, not 1"),
        (lambda local: local.summary(interval="0.9"), "between 0 and 1, not '0.9'"),
        (lambda local: local.summary(interval=None), "between 0 and 1, not None"),
        (lambda local: local.summary(points=64, progress=True), "progress must be a function"),
        (lambda local: local.summary(points=64, workers="x"), "workers must be a whole.*'x'"),
    ],
)
def test_arguments_of_another_kind_are_refused(ask, said, result):
    with pytest.raises(BadInputError, match=said):
        ask(result.local)


def test_groups_may_be_rows_of_a_summary_in_any_order(result):
    rows = result.local.summary().index
    expected = result.local.draws(["N001", "N002"], n=16)
    found = result.local.draws(rows[[2, 1, 2]], n=16)
    assert found.identical(expected)
    assert found["group"].values.tolist() == ["N001", "N002"]
    assert result.local.draws(expected["group"][::-1], n=16).identical(expected)


def test_it_says_in_a_line_what_groups_there_are(result):
    assert repr(result.local) == "LocalParameters: 30 groups of plane (Intercept)"
    gone = replace(result, local_work=LocalRun(Path("nowhere"), result.model))
    assert repr(gone.local) == "LocalParameters: groups of plane (Intercept)"


def test_a_model_without_groups_has_no_local_parameters(tmp_path, rng):
    data = {"z": rng.normal(size=(40, 2))}
    result = sample(data, tmp_path / "run", MeanModel(), workers=2, draws=64)
    with pytest.raises(BadInputError, match="no groups"):
        _ = result.local


def test_a_damaged_file_of_summaries_is_named(result):
    result.local.summary()
    path = Path(result.run_dir) / FILE
    for content in (path.read_bytes()[:-200], b"", b"not of numpy"):
        path.write_bytes(content)
        with pytest.raises(BadInputError, match=f"{re.escape(FILE)} is damaged: .* Remove it"):
            result.local.summary()


def test_a_folder_that_is_gone_is_named(result):
    labels = result.local.labels()  # which opens the run
    folder = Path(result.run_dir)
    folder.rename(folder.with_name("elsewhere"))
    try:
        for ask in (result.local.summary, lambda: result.local.draws(labels[:1])):
            with pytest.raises(BadInputError, match=f"The folder of the run, {folder}, is gone"):
                ask()
    finally:
        folder.with_name("elsewhere").rename(folder)


# ---------------------------------------------------------------- faults


def test_a_worker_killed_on_the_way_changes_nothing(result, expected):
    first = result.local.summary()
    (Path(result.run_dir) / FILE).unlink()
    attack = KillsAWorker()
    again = result.local.summary(progress=attack)
    assert attack.done
    np.testing.assert_array_equal(again, first)
    assert_as_expected(again, expected)
    names = planes(range(8))
    draws = result.local.draws(names)
    attack = KillsAWorker()
    again = result.local.draws(names, progress=attack)
    assert attack.done
    np.testing.assert_array_equal(again["r_plane"], draws["r_plane"])


def test_after_an_interrupt_it_can_be_called_again(result, expected):
    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        result.local.summary(progress=interrupt)
    assert not workers_of(os.getpid())
    assert not (Path(result.run_dir) / FILE).exists()
    assert_as_expected(result.local.summary(), expected)


@pytest.fixture
def shut(fitted, tmp_path):
    """A copy of the run in which neither summaries nor logs can be written."""
    folder = Path(shutil.copytree(fitted.run_dir, tmp_path / "run"))
    (folder / FILE).unlink(missing_ok=True)
    (folder / FILE).mkdir()
    shutil.rmtree(folder / "logs")
    (folder / "logs").write_text("in the way")
    return folder


def test_summaries_that_cannot_be_kept_are_told_all_the_same(shut, expected):
    with pytest.warns(QuorateWarning, match=r"local.npz cannot be written .* are not kept"):
        found = opened(shut).summary()
    assert_as_expected(found, expected)


def test_draws_need_no_folder_for_logs(shut, result):
    names = planes([3, 5])
    xr.testing.assert_equal(opened(shut).draws(names), result.local.draws(names))
    assert (shut / "logs").read_text() == "in the way"


class Raising(OneWay):
    """Raises where group 7 is; only once if a file is there to remember."""

    def __init__(self, marker=None):
        super().__init__()
        self.marker = marker

    def local_moments(self, points, shard):
        if 7 in shard["group"] and not (self.marker and self.marker.exists()):
            if self.marker:
                self.marker.touch()
            raise ZeroDivisionError("a group that cannot be")
        return super().local_moments(points, shard)


def test_errors_of_user_code_are_told_and_forgiven_once(result, expected, tmp_path):
    with pytest.raises(WorkerFailedError, match="ZeroDivisionError: a group that cannot be"):
        with_model(result, Raising()).local.summary()
    assert not (Path(result.run_dir) / FILE).exists()
    once = with_model(result, Raising(tmp_path / "marker"))
    assert_as_expected(once.local.summary(), expected)
    assert (tmp_path / "marker").exists()


SCRIPT = """
from pathlib import Path
from quorate.run.local import opened
def tell(done, total):
    if done:
        print(done, flush=True)
        sys.stdin.read()  # until it is killed
opened(Path({run!r})).summary(progress=tell)
"""


def test_a_coordinator_killed_on_the_way_leaves_nothing_half_done(result, expected):
    assert int(killed_when_it_speaks(SCRIPT.format(run=result.run_dir))) >= 1
    assert not (Path(result.run_dir) / FILE).exists()
    assert_as_expected(result.local.summary(), expected)


@given(n_all=st.integers(1, 5000), n=st.integers(1, 6000))
def test_scattered_numbers_are_one_of_each_part(n_all, n):
    found = scattered(n_all, n)
    n = min(n, n_all)
    np.testing.assert_array_equal(found, scattered(n_all, n))
    assert len(set(found.tolist())) == n
    ends = np.arange(n + 1) * n_all // n
    assert (found >= ends[:-1]).all()
    assert (found < ends[1:]).all()


def test_scattered_draws_are_of_all_chains():
    """Every 25th draw of 125 chains in turn would be of five chains."""
    found = scattered(5000, 200)
    assert len(set((found % 125).tolist())) > 80
    assert len(set((np.arange(0, 5000, 25) % 125).tolist())) == 5

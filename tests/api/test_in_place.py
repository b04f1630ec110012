"""Rows in place: workers read Parquet files where they lie, and the coordinator reads none."""

import os
import signal
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy.stats import norm

import quorate
from helpers.assertions import FALSE_FAIL_RATE
from helpers.object_store import object_store
from quorate import Cut, Processes
from quorate.cli import main
from quorate.data.addresses import addresses_of
from quorate.data.placed import PlacedShards, sites_in
from quorate.errors import BadInputError, WorkerFailedError
from quorate.models import linear
from quorate.numerics.ess import mean_ess
from quorate.run.progress import Phase

N, WORKERS = 1200, 3
ONE = Processes(1)
TRUTH = np.array([0.5, 1.0, -1.0])


def stacked(rows):
    """Named columns as X and y."""
    columns = np.column_stack([np.ones(len(rows["y"])), rows["a"], rows["b"]])
    return {"X": columns, "y": rows["y"]}


@pytest.fixture(scope="module")
def rows(seed):
    rng = np.random.default_rng([seed, 19])
    a, b = rng.normal(size=(2, N))
    return {"a": a, "b": b, "y": TRUTH @ [np.ones(N), a, b] + rng.normal(size=N), "unread": a * 0}


def write(rows, folder, order, n_files=WORKERS, row_group_size=None):
    """Rows in this order, one file after the other."""
    folder.mkdir(parents=True)
    for number, part in enumerate(np.array_split(order, n_files)):
        table = pa.table({name: values[part] for name, values in rows.items()})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=row_group_size)
    return str(folder / "*.parquet")


def sample(data, by="in-place", **options):
    """One process for all workers, which is the quickest to start, unless `options` say else."""
    defaults = {"workers": WORKERS, "draws": 400, "progress": False, "check": False}
    cut = Cut(by, columns=["a", "b", "y"], transform=stacked)
    return quorate.sample(linear(3), data, by=cut, **{"engine": ONE, **defaults, **options})


def least_squares(rows):
    """Means and standard deviations of the coefficients, (3,): the prior moves them by 1e-3 sds."""
    X, y = stacked(rows).values()  # noqa: N806
    inverse = np.linalg.inv(X.T @ X)
    means = inverse @ X.T @ y
    variance = np.sum((y - X @ means) ** 2) / (len(y) - 3)
    return means, np.sqrt(variance * np.diag(inverse))


def is_posterior_of(rows, draws):
    """Whether means and standard deviations of the coefficients are right.

    The false-alarm rate is 2e-6: an ESS is an estimate itself, so errors may be a fifth larger.
    """
    found, (means, sds) = draws[:, :3], least_squares(rows)
    limit = 1.2 * norm.isf(FALSE_FAIL_RATE / 6)
    scaled = (found - means) / sds
    squares = scaled**2
    z = scaled.mean(axis=0) * np.sqrt(mean_ess(scaled[None]))
    z_of_spread = (squares.mean(axis=0) - 1) * np.sqrt(mean_ess(squares[None]) / 2)
    return bool(max(np.abs(z).max(), np.abs(z_of_spread).max()) < limit)


@pytest.fixture(scope="module")
def plain(rows, seed, tmp_path_factory):
    """A run of 100 draws from a few files, with which others are compared."""
    folder = tmp_path_factory.mktemp("plain")
    files = write(rows, folder / "lake", np.arange(N))
    return sample(files, seed=seed, draws=100, run_dir=folder / "run")


def test_sorted_files_give_the_posterior_of_all_rows(rows, tmp_path, seed):
    order = np.argsort(rows["y"])
    run = tmp_path / "run"
    result = sample(write(rows, tmp_path / "lake", order), seed=seed, run_dir=run)
    assert is_posterior_of(rows, result.unconstrained)
    without_a_few = {name: values[order[12:]] for name, values in rows.items()}
    assert not is_posterior_of(without_a_few, result.unconstrained)
    assert quorate.check(run).verdict == "good"  # it may take as long as it takes
    page = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["report", str(run), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert "in-place" in page.read_text()


def test_a_merge_of_rows_in_place_is_refused_unless_they_are_said_to_be_random(
    rows, tmp_path, rng, seed
):
    files = write(rows, tmp_path / "lake", np.argsort(rows["y"]))
    for options in ({"method": "merge"}, {"sampler": "ellipse"}, {"on_lost_shard": "exclude"}):
        with pytest.raises(BadInputError, match=r"random samples.*by='in-place-random'"):
            sample(files, **options)
    with pytest.raises(BadInputError, match="method='merge'"):
        sample(files, by="in-place-random", sampler="ellipse")
    mixed = write(rows, tmp_path / "mixed", rng.permutation(N))
    merged = sample(mixed, by="in-place-random", method="merge", seed=seed)
    # Weights and draws of a merge err by about a tenth of a standard deviation. So one of them is
    # ten standard errors, and the false-alarm rate is far below 1e-6.
    means, sds = least_squares(rows)
    assert np.all(np.abs(merged.unconstrained.mean(axis=0)[:3] - means) < sds)


def test_the_coordinator_reads_no_row_and_copies_are_removed(rows, tmp_path, seed, monkeypatch):
    """Its own reader of rows is taken away. Workers are other processes, which have theirs."""
    files, scratch = write(rows, tmp_path / "lake", np.arange(N)), tmp_path / "scratch"
    cut = Cut("in-place", columns=["a", "b", "y"], transform=stacked, scratch=str(scratch))
    run, seen, phases = tmp_path / "run", [], set()

    def refused(*_):
        raise AssertionError("the coordinator has read rows")

    def listen(progress):
        seen.extend(scratch.glob("*/shard-*"))
        phases.add(progress.phase)

    monkeypatch.setattr("quorate.data.row_groups.RowGroups.batches", refused)
    monkeypatch.setattr("quorate.data.files.Files.batches", refused)
    options = {"workers": WORKERS, "draws": 100, "seed": seed, "check": False, "engine": ONE}
    quorate.sample(linear(3), files, by=cut, progress=listen, run_dir=run, **options)
    assert seen
    assert Phase.READING in phases
    assert list(scratch.iterdir()) == []
    assert sorted(path.name for path in (run / "shards").iterdir()) == ["in-place.json"]
    with pytest.raises(BadInputError, match="holds the shards of another run"):
        sample(files, seed=seed, run_dir=run)


def test_row_groups_are_dealt_evenly_from_footers(rows, tmp_path, seed):
    files = write(rows, tmp_path / "lake", np.arange(N), n_files=2, row_group_size=70)
    run = tmp_path / "run"
    result = sample(files, run_dir=run, seed=seed)
    shards = PlacedShards.open(run / "shards")
    assert sum(shards.n_rows) == N
    assert max(shards.n_rows) - min(shards.n_rows) <= 70
    assert is_posterior_of(rows, result.unconstrained)
    tree = result.log_likelihood(10)  # in the order of the data
    *betas, sigma = (tree["posterior"][name].values for name in tree["posterior"].data_vars)
    eta = np.stack(betas, axis=-1) @ stacked(rows)["X"].T
    expected = norm.logpdf(rows["y"], eta, sigma[..., None])
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values, expected, rtol=1e-9)


def test_the_draws_depend_neither_on_engine_nor_on_scheme(rows, plain, tmp_path, seed):
    files = write(rows, tmp_path / "lake", np.arange(N))
    coded = {"scheme": "coded", "engine": Processes()}
    for options in (coded, {"scheme": "grouped"}):
        again = sample(files, seed=seed, draws=100, **options).unconstrained
        np.testing.assert_array_equal(again, plain.unconstrained)


def test_a_file_that_changed_is_an_error_on_resume(rows, tmp_path, seed):
    files, run = write(rows, tmp_path / "lake", np.arange(N)), tmp_path / "run"
    sample(files, seed=seed, draws=400, run_dir=run)
    assert quorate.resume(run, draws=500, progress=False, check=False).n_draws == 500
    pq.write_table(
        pa.table({name: values[:400] + 1.0 for name, values in rows.items()}),
        tmp_path / "lake" / "0.parquet",
    )
    with pytest.raises(WorkerFailedError, match=r"0\.parquet has changed since the run began"):
        quorate.resume(run, draws=600, progress=False, check=False)


# ---------------------------------------------------------------- sites


def sites_of(rows, folder):
    """Each site has rows that no other has: different populations, in files of its own."""
    write(rows, folder, np.argsort(rows["a"]))
    return {name: folder / f"{number}.parquet" for number, name in enumerate(("A", "B", "C"))}


def test_sites_keep_their_rows_and_have_one_holder_each(rows, tmp_path, seed):
    sites = sites_of(rows, tmp_path / "data")
    result = sample(sites, workers=8, seed=seed, run_dir=tmp_path / "run")
    assert (result.workers, result.redundancy) == (3, 1)
    assert is_posterior_of(rows, result.unconstrained)
    verdict = quorate.check(tmp_path / "run")
    assert verdict.verdict == "good"
    assert any("A, B, C lie only there" in remark for remark in verdict.remarks)


def test_a_site_may_have_several_workers(rows, tmp_path, seed):
    write(rows, tmp_path / "data", np.argsort(rows["a"]), n_files=2, row_group_size=100)
    sites = {"A": tmp_path / "data" / "0.parquet", "B": tmp_path / "data" / "1.parquet"}
    run = tmp_path / "run"
    sample(sites, workers=4, run_dir=run, seed=seed, draws=100)
    shards = PlacedShards.open(run / "shards")
    assert [place.site for place in shards.places] == ["A", "A", "B", "B"]
    assert shards.n_rows == (300, 300, 300, 300)
    assert quorate.resume(run, draws=120, progress=False, check=False).n_draws == 120


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 4}, "3 sites cannot share 4 workers"),
        ({"redundancy": 2}, "rows of a site exist only there"),
        ({"scheme": quorate.Coded(redundancy=2)}, "rows of a site exist only there"),
    ],
)
def test_what_sites_cannot_have(options, said, rows, tmp_path):
    with pytest.raises(BadInputError, match=said):
        sample(sites_of(rows, tmp_path / "data"), **options)


def test_sites_of_the_command_line_are_told(rows, tmp_path, seed):
    sites = sites_of(rows, tmp_path / "data")
    files = [f"{name}={path}" for name, path in sites.items()]
    words = ["sample", *files, "--formula", "y ~ a + b", "--by", "in-place", "--draws", "100",
             "--processes", "1", "--no-check"]  # fmt: skip
    done = CliRunner().invoke(
        main, [*words, "--run-dir", str(tmp_path / "run"), "--seed", str(seed)]
    )
    assert done.exit_code == 0, done.output
    assert "Sites: The rows of A, B, C lie only there" in done.output


# ---------------------------------------------------------------- addresses


def test_files_at_a_url(rows, plain, tmp_path, seed):
    write(rows, tmp_path / "a lake", np.arange(N))
    url = (tmp_path / "a lake").as_uri()
    listed = [f"{url}/{i}.parquet" for i in range(3)]
    assert addresses_of(url) == addresses_of(f"{url}/*.parquet") == addresses_of(listed)
    at_url = sample(url, seed=seed, draws=100)
    np.testing.assert_array_equal(at_url.unconstrained, plain.unconstrained)


def test_files_of_a_store_with_a_host_keep_it(tmp_path, monkeypatch):
    """As of hdfs://, whose library is not here: the files of a folder, behind a host."""
    write({"y": np.arange(6.0)}, tmp_path / "lake", np.arange(6), n_files=2)
    local = pa.fs.LocalFileSystem()
    monkeypatch.setattr(
        "quorate.data.addresses._filesystem", lambda url: (local, urlsplit(url).path)
    )
    base = f"hdfs://head:8020{tmp_path}/lake"
    assert addresses_of(f"{base}/*.parquet") == (f"{base}/0.parquet", f"{base}/1.parquet")


def test_files_of_an_object_store(rows, plain, tmp_path, seed, monkeypatch):
    """pyarrow's own client of S3, and a server that speaks as much of it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write(rows, tmp_path / "lake" / "2026" / "in", np.arange(N))
    write(rows, tmp_path / "lake" / "2026" / "in" / "deeper", np.arange(N))
    with object_store(tmp_path) as (options, asked):
        url = f"s3://lake/2026/*/*.parquet?{options}"
        found = sample(url, seed=seed, draws=100)
    np.testing.assert_array_equal(found.unconstrained, plain.unconstrained)
    assert {each.split()[0] for each in asked} == {"0.parquet", "1.parquet", "2.parquet"}


def test_a_program_that_would_be_traced_with_all_rows_is_refused(rows, tmp_path):
    import numpyro

    def program(a, y):
        numpyro.sample("y", numpyro.distributions.Normal(a, 1), obs=y)

    files = write(rows, tmp_path / "lake", np.arange(N))
    with pytest.raises(BadInputError, match="few rows"):
        quorate.sample(program, files, by="in-place")


@pytest.mark.parametrize(
    ("data", "by", "said"),
    [
        ("s3://lake/*.parquet", "shuffle", "is a URL.*by='in-place'"),
        ("nowhere://lake/x.parquet", "in-place", "no address that pyarrow knows"),
        ("missing/*.parquet", "in-place", "No file found"),
        ({"x": np.ones(3)}, "in-place", "give a path for each site"),
        (np.ones(3), "in-place", "Parquet files, not in a ndarray"),
    ],
)
def test_addresses_that_cannot_be_read(data, by, said):
    with pytest.raises(BadInputError, match=said):
        sample(data, by=by)


def test_only_parquet_files_stay_in_place(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,y\n1,2,3\n")
    with pytest.raises(BadInputError, match=r"rows\.csv is no Parquet file"):
        sample(tmp_path / "rows.csv")


def test_too_few_row_groups_are_refused(rows, tmp_path):
    files = write(rows, tmp_path / "lake", np.arange(N))
    with pytest.raises(BadInputError, match="3 files with 3 row groups, too few for 5 shards"):
        sample(files, workers=5)


# ---------------------------------------------------------------- workers that stop


class StopsOnce:
    """Stacks columns, but the first process that is asked to stops for good."""

    def __init__(self, mark):
        self.mark = mark

    def __call__(self, rows):
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return stacked(rows)
        os.kill(os.getpid(), signal.SIGSTOP)
        return stacked(rows)


def test_a_worker_that_stops_while_it_reads_is_done_without(rows, plain, tmp_path, seed):
    files = write(rows, tmp_path / "lake", np.arange(N))
    cut = Cut("in-place", columns=["a", "b", "y"], transform=StopsOnce(tmp_path / "mark"))
    options = {"workers": WORKERS, "draws": 100, "seed": seed, "check": False, "progress": False}
    found = quorate.sample(linear(3), files, by=cut, **options)
    assert (tmp_path / "mark").exists()
    np.testing.assert_array_equal(found.unconstrained, plain.unconstrained)


def test_files_that_arrive_later_are_added_in_place(rows, plain, tmp_path, rng, seed):
    """Their rows are of another population: without them, the posterior is far away."""
    new = {name: values[: N // 3] + 1.0 for name, values in rows.items()}
    new["y"] = new["y"] + rng.normal(size=N // 3)
    write(new, tmp_path / "new", np.arange(N // 3), n_files=1)
    late = tmp_path / "new" / "0.parquet"
    result = quorate.update(
        plain, late, draws=400, seed=seed, run_dir=tmp_path / "run", progress=False, check=False
    )
    both = {name: np.concatenate([rows[name], new[name]]) for name in rows}
    assert is_posterior_of(both, result.unconstrained)
    assert not is_posterior_of(rows, result.unconstrained)
    shards = PlacedShards.open(tmp_path / "run" / "shards")
    assert shards.n_rows == (400, 400, 400, 400)
    np.testing.assert_array_equal(np.concatenate(shards.rows_of_data()), np.arange(4 * 400))
    assert quorate.resume(tmp_path / "run", draws=420, progress=False, check=False).n_draws == 420
    with pytest.raises(BadInputError, match="among the files of the run"):
        quorate.update(tmp_path / "run", late, progress=False)
    with pytest.raises(BadInputError, match="Leave out `by`"):
        quorate.update(plain, late, by="shuffle", progress=False)
    with pytest.raises(BadInputError, match="rows of a site exist only there"):
        quorate.update(plain, {"A": late}, progress=False)


def test_a_folder_that_looks_like_a_site_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = ["year=2026/*.parquet"]
    assert sites_in(files) == {"year": ("2026/*.parquet",)}
    (tmp_path / "year=2026").mkdir()
    assert sites_in(files) == {}

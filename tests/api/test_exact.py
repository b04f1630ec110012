"""Exact runs: the answer does not depend on K, on the scheme, on the engine or on who was slow."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import quorate
from helpers.assertions import FALSE_FAIL_RATE
from helpers.cases import FOLDER, MODELS, REFERENCE
from helpers.processes import MeanModel, workers_of
from quorate import Coded, Until
from quorate.engines.latency import Pareto
from quorate.engines.virtual.passes import VirtualPasses
from quorate.engines.workers.worker import Job, Worker
from quorate.errors import BadInputError, ImproperError, LostShardError, WorkerFailedError
from quorate.journal import JournalReader, PartAnswered, PassRecord
from quorate.models import from_functions, linear
from quorate.numerics.ess import joined_chains, mean_ess
from quorate.numerics.streams import Streams
from quorate.protocol.passes import PassCoordinator
from quorate.run.settings import Settings
from quorate.samplers.ellipse import EllipseSampler

CASE, WORKERS, DRAWS = "logmesquite", 4, 240


def rows_of(case):
    with np.load(FOLDER / f"{case}.npz") as data:
        return dict(data)


def sample(run=None, case=CASE, **options):
    options = {"workers": WORKERS, "draws": DRAWS, "check": False, "progress": False, **options}
    return quorate.sample(MODELS[case], rows_of(case), method="exact", run_dir=run, **options)


def exact(model, data, **options):
    options = {"workers": 2, "draws": 40, "progress": False, "check": False, **options}
    return quorate.sample(model, data, method="exact", **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, seed):
    return sample(tmp_path_factory.mktemp("exact") / "run", seed=seed).unconstrained


# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize(
    "scheme",
    ["cmc", "grouped", "coded", Coded(redundancy=3, code="reed-solomon"), "genie"],
    ids=["cmc", "grouped", "coded", "reed-solomon", "genie"],
)
def test_all_schemes_give_the_same_draws(undisturbed, scheme, seed):
    np.testing.assert_array_equal(sample(scheme=scheme, seed=seed).unconstrained, undisturbed)


@pytest.mark.parametrize("scheme", ["adaptive", "coded"])
def test_a_slow_and_a_dead_worker_change_no_bit(undisturbed, scheme, seed):
    result = sample(scheme=scheme, faults="slow:1x10,dead:1@2", seed=seed)
    assert result.lost
    np.testing.assert_array_equal(result.unconstrained, undisturbed)


def test_a_killed_worker_changes_no_bit(undisturbed, seed):
    killed = []

    def kill(progress):
        if progress.draws and not killed:
            killed.append(workers_of(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    result = sample(progress=kill, every=0.0, seed=seed)
    assert killed
    np.testing.assert_array_equal(result.unconstrained, undisturbed)


def test_virtual_time_gives_the_same_draws(undisturbed, seed, tmp_path):
    settings = Settings(method="exact", workers=WORKERS, draws=DRAWS, seed=seed)
    shards = settings.cut.write(rows_of(CASE), WORKERS, tmp_path / "shards", seed)
    model = MODELS[CASE]
    scheme = settings.make_exact_scheme(model.initial(), model.names, has_gradient=True)
    job = Job(model, EllipseSampler(), scheme.worker_side, "", WORKERS, seed)
    coordinator = PassCoordinator(scheme, DRAWS)
    latency, streams = Pareto(0.1, 1.2), Streams(seed)
    timeline = VirtualPasses(coordinator, Worker(job, {}, shards), latency, streams).run()
    assert timeline.finished
    np.testing.assert_array_equal(scheme.received.global_draws(), undisturbed)


SCRIPT = """
import sys
sys.path[:0] = [{tests!r}, {here!r}]
from test_exact import sample
def tell(progress):
    print(progress.draws, flush=True)
sample({run!r}, progress=tell, every=0.0, seed={seed}, faults="slow:4x30")
"""


def killed_run(run, seed):
    """Start a run in a process of its own, and kill -9 that when it has draws."""
    here = Path(__file__).parent
    script = SCRIPT.format(tests=str(here.parent), here=str(here), run=str(run), seed=seed)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert any(int(line) for line in process.stdout)
        process.kill()


def test_a_run_whose_coordinator_was_killed_gives_the_same_draws(undisturbed, seed, tmp_path):
    run = tmp_path / "run"
    killed_run(run, seed)
    with JournalReader(run) as reader:
        n_before = sum(isinstance(record, PassRecord) for record in reader.records())
    result = quorate.resume(run, progress=False, check=False)
    assert result.stopped == "done"
    assert result.n_passes > n_before - WORKERS > 0  # each shard has a record of its survey
    np.testing.assert_array_equal(result.unconstrained, undisturbed)
    more = quorate.resume(run, draws=2 * DRAWS, progress=False, check=False)
    assert more.n_draws == 2 * DRAWS
    np.testing.assert_array_equal(more.unconstrained[:DRAWS], undisturbed)


def test_a_stream_ends_with_the_same_draws(undisturbed, seed):
    stream = quorate.stream(
        MODELS[CASE],
        rows_of(CASE),
        method="exact",
        workers=WORKERS,
        draws=DRAWS,
        seed=seed,
        every=0,
    )
    *earlier, last = stream
    np.testing.assert_array_equal(last.unconstrained, undisturbed)
    for result in earlier:
        np.testing.assert_array_equal(result.unconstrained, undisturbed[: result.n_draws])


# ---------------------------------------------------------------- what is sent


def test_a_coded_worker_sends_one_float_for_each_point(tmp_path, seed):
    run = tmp_path / "run"
    sample(run, scheme="coded", seed=seed, case="capture_Mt")  # without gradients
    with JournalReader(run) as reader:
        parts = [record for record in reader.records() if isinstance(record, PartAnswered)]
    answers = [part for part in parts if part.lane >= 0]
    assert answers
    assert all(part.n_floats == part.n_points and len(part.shards) == 2 for part in answers)


# ---------------------------------------------------------------- right, whatever K


def assert_reference(case, result):
    """Means are those of the reference, at the stated false-alarm rate; Bonferroni."""
    known, draws = REFERENCE[case], result.unconstrained
    chains = draws[joined_chains(len(draws), result.n_chains)]
    noise = np.sqrt(1 / mean_ess(chains) + 1 / known["n_draws"])
    z = (chains.mean(axis=(0, 1)) - known["mean"]) / known["sd"] / noise
    squares = (chains - known["mean"]) ** 2 / np.square(known["sd"])
    noise = squares.std(axis=(0, 1)) * np.sqrt(1 / mean_ess(squares) + 1 / known["n_draws"])
    z_squares = (squares.mean(axis=(0, 1)) - 1) / noise
    limit = norm.isf(FALSE_FAIL_RATE / (4 * len(z)))
    worst = max(np.abs(z).max(), np.abs(z_squares).max())
    assert worst < limit, f"|z| = {worst:.1f}, limit {limit:.1f}"


@pytest.mark.parametrize("case", REFERENCE)
def test_real_posteriors(case, seed):
    """The verdict is good; logmesquite has no proper shard at K = 8."""
    result = sample(case=case, workers=8, draws=2000, check=True, seed=seed)
    assert_reference(case, result)
    assert result.verdict.in_short == "good"


@pytest.mark.parametrize("case", ["capture_Mt", "wells_dae_inter"])
@pytest.mark.parametrize("workers", [1, 32])
def test_the_answer_does_not_depend_on_the_number_of_shards(case, workers, seed):
    engine = quorate.Processes(2)
    result = sample(case=case, workers=workers, draws=2000, engine=engine, seed=seed)
    assert_reference(case, result)


@pytest.mark.filterwarnings("ignore::quorate.errors.NotANumberWarning")
def test_a_merge_does(seed):
    """The control: at K = 8 its floor is 0.7 to 3.4 standard deviations, by how rows are cut."""
    merged = quorate.sample(
        MODELS["capture_Mt"],
        rows_of("capture_Mt"),
        workers=8,
        draws=500,
        seed=seed,
        check=False,
        progress=False,
        sampler=EllipseSampler(warns=False),
    )
    with pytest.raises(AssertionError, match="z"):
        assert_reference("capture_Mt", merged)


def test_rows_with_wrong_labels_are_named_though_the_draws_are_good(tmp_path, seed):
    """The first file has other labels, 20 sds of a shard away; the answer for all rows is right.

    The control is a run with the same labels everywhere: it has a remark in one run of a thousand.
    """
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    x = rng.normal(size=4000)
    right = (rng.random(4000) < 1 / (1 + np.exp(-1.5 * x))).astype(float)
    wrong = np.where(np.arange(4000) < 1000, 1 - right, right)
    remarks = []
    for y in (right, wrong):
        files = [tmp_path / f"{part}.parquet" for part in range(4)]
        for path, rows in zip(files, np.array_split(np.arange(4000), 4), strict=True):
            pd.DataFrame({"x": x[rows], "y": y[rows]}).to_parquet(path)
        result = exact(slope(), files, workers=4, draws=1000, by="files", check=True, seed=seed)
        assert result.verdict.verdict == "good"
        remarks.append(result.verdict.remarks)
    assert remarks[0] == []
    assert "disagree" in remarks[1][0]


def slope():
    """A logistic regression without an intercept."""

    def log_likelihood(beta, rows):
        eta = rows["x"] * beta[0]
        return rows["y"] @ eta - np.sum(np.logaddexp(0, eta))

    return from_functions(lambda beta: -0.5 * beta @ beta, log_likelihood, ["beta"])


def test_a_second_mode_is_caught(seed):
    """Only θ² is observed, and the modes are 160 posterior sds apart: chains see one of them."""
    y = np.random.default_rng(seed).normal(1.0, 0.5, size=400)
    model = from_functions(
        lambda p: -0.5 * (p["theta"] - 0.3) ** 2,
        lambda p, shard: -2 * np.sum((shard["y"] - p["theta"] ** 2) ** 2),
        {"theta": quorate.models.Real()},
    )
    result = exact(model, {"y": y}, workers=4, draws=1000, check=True, seed=seed)
    assert len(np.unique(np.sign(result.unconstrained))) == 1
    assert result.verdict.verdict == "do not trust"
    assert "where no chain has been" in result.verdict.advice


def test_the_evidence_of_a_conjugate_model(seed):
    """Of the mean of rows with known sd 1, under a normal prior: in closed form."""
    z = np.random.default_rng(seed).normal(size=60)
    model = from_functions(
        lambda p: -0.5 * p["theta"] ** 2 / 4 - np.log(2) - 0.5 * np.log(2 * np.pi),
        lambda p, shard: np.sum(-0.5 * (shard["z"] - p["theta"]) ** 2 - 0.5 * np.log(2 * np.pi)),
        {"theta": quorate.models.Real()},
    )
    result = quorate.sample(
        model,
        {"z": z},
        method="exact",
        workers=3,
        draws=100,
        seed=seed,
        check=False,
        progress=False,
    )
    precision = len(z) + 1 / 4
    expected = (
        -0.5 * len(z) * np.log(2 * np.pi)
        - np.log(2)
        - 0.5 * np.log(precision)
        - 0.5 * (z @ z - z.sum() ** 2 / precision)
    )
    assert abs(result.log_evidence.value - expected) < 5 * result.log_evidence.error + 1e-6
    assert result.log_evidence.error < 0.1


# ---------------------------------------------------------------- faces of a run


def test_summary_and_arviz_know_the_chains(undisturbed, seed):
    result = sample(seed=seed)
    posterior = result.posterior["posterior"]
    n_chains = posterior.sizes["chain"]
    assert n_chains * posterior.sizes["draw"] == DRAWS
    for name, draws in result.variables.items():
        np.testing.assert_array_equal(posterior[name], draws[result.chain_rows])
        first = posterior[name].to_numpy()[0, 1]  # the first chain of the ensemble comes first
        np.testing.assert_array_equal(first, draws[result.n_chains])
    assert set(result.summary().columns) >= {"ess", "r_hat"}


def test_time_is_up(seed):
    """A sitting that ends early gives what every chain has."""
    result = sample(draws=10**6, until=Until(time=3.0), seed=seed)
    assert result.stopped == "time is up"
    assert result.n_draws % result.n_chains == 0


def test_enough_effective_draws(seed):
    result = sample(draws=10**6, until=Until(ess=100.0), seed=seed)
    assert result.stopped == "enough effective draws"
    assert result.summary()["ess"].min() >= 50


# ---------------------------------------------------------------- bad input


def test_an_improper_posterior_is_named(seed):
    """The second column is the first once more, and the prior is flat."""
    x = np.random.default_rng(seed).normal(size=(50, 1))
    data = {"X": np.hstack([x, x]), "y": x[:, 0]}
    with pytest.raises((ImproperError, WorkerFailedError), match=r"beta|flat|rank"):
        exact(linear(2, "flat", scale_prior="flat"), data, seed=seed)


def test_a_likelihood_that_is_never_finite(seed):
    model = from_functions(
        lambda p: -0.5 * p["a"] ** 2,
        lambda p, shard: -np.inf,
        {"a": quorate.models.Real()},
    )
    with pytest.raises((BadInputError, WorkerFailedError), match="log_likelihood is -inf"):
        exact(model, {"z": np.arange(8.0)}, seed=seed)


def fussy(p, shard):
    if p["a"] > 1.5:
        raise ValueError("too large for me")
    return -0.5 * np.sum((shard["z"] - p["a"]) ** 2)


def test_a_model_that_raises_at_some_points_only(seed):
    """It has no density there: a normal that is cut off."""
    z = np.random.default_rng(seed).normal(size=40)
    z += 1.0 - z.mean()  # so that few points are too large
    model = from_functions(lambda p: -0.05 * p["a"] ** 2, fussy, {"a": quorate.models.Real()})
    draws = exact(model, {"z": z}, draws=400, seed=seed).unconstrained
    assert draws.max() <= 1.5


def test_few_draws(seed):
    for n in (1, 7):
        assert exact(linear(1), {"X": np.ones((20, 1)), "y": np.arange(20.0)}, draws=n).n_draws == n


def test_a_shard_that_nobody_holds_any_more(seed):
    with pytest.raises(LostShardError, match="No living worker holds"):
        exact(MeanModel(), {"z": np.zeros((40, 2)), "row": np.arange(40)}, scheme="cmc",
              faults="dead:1@1", seed=seed)  # fmt: skip


def test_exact_runs_cannot_leave_shards_out():
    with pytest.raises(BadInputError, match="needs all shards"):
        Settings(method="exact", on_lost_shard="exclude")
    with pytest.raises(BadInputError, match="'exact' or 'merge'"):
        Settings(method="approximate")

"""Combination rules: identities, exactness where it holds, and what is refused."""

import warnings

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t

import quorate
from helpers.assertions import FALSE_FAIL_RATE
from quorate.cli import main
from quorate.errors import CombinationWarning
from quorate.merging import RULES
from quorate.merging.shard_draws import ShardDraws
from quorate.merging.swiss import optimal_map

EVERY_RULE = list(RULES)
GAUSSIAN_RULES = ["consensus", "gaussian", "swiss"]


class Gaussians:
    """Subposteriors whose product is known."""

    def __init__(self, n_shards, dim, rng):
        factors = rng.normal(size=(n_shards, dim, 2 * dim))
        self.covs = factors @ factors.swapaxes(1, 2) / (2 * dim) + 0.3 * np.eye(dim)
        self.means = 0.5 * rng.normal(size=(n_shards, dim))
        precisions = np.linalg.inv(self.covs)
        self.cov = np.linalg.inv(precisions.sum(axis=0))
        self.mean = self.cov @ np.einsum("sij,sj->i", precisions, self.means)

    def draws(self, counts, rng):
        return [
            rng.multivariate_normal(mean, cov, count)
            for mean, cov, count in zip(self.means, self.covs, counts, strict=True)
        ]


@pytest.fixture
def shards(rng):
    """Three shards in three dimensions, of unequal counts."""
    return Gaussians(3, 3, rng).draws([150, 90, 200], rng)


# Identities


@pytest.mark.parametrize("rule", ["consensus", "swiss", "semiparametric", "weierstrass"])
def test_one_shard_is_the_posterior(rule, shards):
    combined = quorate.combine(shards[:1], rule)
    np.testing.assert_allclose(combined.draws, shards[0], atol=1e-12)
    np.testing.assert_allclose(combined.covariance, np.cov(shards[0].T), rtol=1e-9)


def test_one_gaussian_shard_keeps_its_moments(shards):
    combined = quorate.combine(shards[:1], "gaussian")
    np.testing.assert_allclose(combined.mean, shards[0].mean(axis=0))
    np.testing.assert_allclose(combined.covariance, np.cov(shards[0].T))


def test_weights_sum_to_the_identity(shards):
    weights = ShardDraws.of(shards).weights
    np.testing.assert_allclose(weights.sum(axis=0), np.eye(3), atol=1e-12)


@pytest.mark.parametrize("weights", ["full", "diagonal", "uniform"])
def test_consensus_is_eq_6_by_the_book(weights, rng):
    shards = Gaussians(4, 3, rng).draws([50] * 4, rng)
    covs = [np.cov(draws.T) for draws in shards]
    if weights == "diagonal":
        covs = [np.diag(np.diag(cov)) for cov in covs]
    if weights == "uniform":
        covs = [np.eye(3)] * 4
    precisions = [np.linalg.inv(cov) for cov in covs]
    total = np.linalg.inv(sum(precisions))
    expected = [
        total
        @ sum(precision @ draws[i] for precision, draws in zip(precisions, shards, strict=True))
        for i in range(50)
    ]
    combined = quorate.combine(shards, weights=weights)
    np.testing.assert_allclose(combined.draws, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(combined.covariance, np.cov(np.transpose(expected)), rtol=1e-10)


def test_consensus_uses_the_draws_of_a_shard_equally_often():
    shards = [np.arange(n, dtype=float)[:, None] * 1000**s for s, n in enumerate([3, 7, 4])]
    total = 3 * quorate.combine(shards, weights="uniform").draws[:, 0]
    for s, n in enumerate([3, 7, 4]):
        digits = np.round(total / 1000**s) % 1000
        uses = np.bincount(digits.astype(int), minlength=n)
        assert set(uses) <= {7 // n, -(-7 // n)}
        assert uses.sum() == 7


@pytest.mark.parametrize("rule", GAUSSIAN_RULES)
def test_affine_maps_go_through(rule, rng):
    shards = Gaussians(3, 3, rng).draws([80] * 3, rng)
    matrix, shift = rng.normal(size=(3, 3)) + 2 * np.eye(3), 5 * rng.normal(size=3)
    before = quorate.combine(shards, rule)
    after = quorate.combine([draws @ matrix.T + shift for draws in shards], rule)
    np.testing.assert_allclose(after.mean, matrix @ before.mean + shift, atol=1e-8)
    np.testing.assert_allclose(after.covariance, matrix @ before.covariance @ matrix.T, atol=1e-8)
    if rule != "gaussian":
        np.testing.assert_allclose(after.draws, before.draws @ matrix.T + shift, atol=1e-8)


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_units_do_not_matter(rule, shards):
    units = np.exp2([-300.0, 0.0, 300.0])
    before = quorate.combine(shards, rule)
    after = quorate.combine([draws * units for draws in shards], rule)
    np.testing.assert_array_equal(after.draws, before.draws * units)
    np.testing.assert_array_equal(after.mean, before.mean * units)


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_wildly_different_units_in_decimal(rule, shards):
    """Covariances have eigenvalues from 0.3 to a few units, so conditions are far below 1,000."""
    units = np.array([1e-12, 1.0, 1e9])
    combined = quorate.combine([draws * units + 1e3 * units for draws in shards], rule)
    correlations = np.corrcoef((combined.draws / units).T)
    assert np.isfinite(combined.draws).all()
    assert np.linalg.cond(correlations) < 1e3


@pytest.mark.parametrize("rule", GAUSSIAN_RULES)
def test_order_of_shards_does_not_matter(rule, rng):
    shards = Gaussians(4, 2, rng).draws([60] * 4, rng)
    forth, back = quorate.combine(shards, rule), quorate.combine(shards[::-1], rule)
    np.testing.assert_allclose(back.mean, forth.mean, atol=1e-10)
    np.testing.assert_allclose(back.covariance, forth.covariance, atol=1e-10)
    order = -1 if rule == "swiss" else 1
    blocks = forth.draws.reshape(-1, 60, 2)[::order]
    np.testing.assert_allclose(back.draws, blocks.reshape(-1, 2), atol=1e-10)


def test_swiss_has_the_moments_of_the_product(shards):
    combined = quorate.combine(shards, "swiss")
    gaussian = quorate.combine(shards, "gaussian")
    np.testing.assert_allclose(combined.mean, gaussian.mean, atol=1e-12)
    np.testing.assert_allclose(combined.covariance, gaussian.covariance, atol=1e-12)
    for part in np.split(combined.draws, [150, 240]):
        np.testing.assert_allclose(part.mean(axis=0), combined.mean, atol=1e-10)
        np.testing.assert_allclose(np.cov(part.T), combined.covariance, atol=1e-10)


def test_swiss_moves_draws_least_in_units_of_the_shard(rng):
    source, target = Gaussians(2, 3, rng).covs
    best = optimal_map(source, target)
    np.testing.assert_allclose(best @ source @ best.T, target, atol=1e-10)

    def moved(matrix):
        gap = matrix - np.eye(3)
        return np.trace(np.linalg.inv(source) @ gap @ source @ gap.T)

    root = np.linalg.cholesky(target)
    for _ in range(20):
        rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        other = root @ rotation @ np.linalg.inv(np.linalg.cholesky(source))
        np.testing.assert_allclose(other @ source @ other.T, target, atol=1e-10)
        assert moved(best) <= moved(other)


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_the_seed_decides(rule, shards):
    first, again = (quorate.combine(shards, rule, seed=3).draws for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert rule == "swiss" or not np.array_equal(first, quorate.combine(shards, rule, seed=4).draws)


# In distribution


def statistics(draws, mean, cov):
    """Moments and shares that are 0 on average for draws of N(mean, cov)."""
    z = (draws - mean) @ np.linalg.inv(np.linalg.cholesky(cov)).T
    first, second = np.triu_indices(z.shape[1])
    products = (z[:, first] * z[:, second]).mean(axis=0) - (first == second)
    shares = (z < norm.ppf(0.1)).mean(axis=0) - 0.1
    return np.concatenate([z.mean(axis=0), products, shares])


def largest_t(rows):
    return float(np.abs(rows.mean(axis=0) / (rows.std(axis=0, ddof=1) / len(rows) ** 0.5)).max())


def is_right(runs, mean, cov):
    """Whether independent runs give draws of N(mean, cov), by t-tests with Bonferroni's limit."""
    rows = np.array([statistics(draws, mean, cov) for draws in runs])
    limit = t.isf(FALSE_FAIL_RATE / (2 * rows.shape[1]), len(rows) - 1)
    return largest_t(rows) < limit


def runs_on_gaussians(rule, seed, **options):
    """Combined draws of 30 independent sets of shards of one problem."""
    problem = Gaussians(3, 2, np.random.default_rng(7))
    runs = []
    for run in range(30):
        shards = problem.draws([1000, 800, 1200], np.random.default_rng((seed, run)))
        runs.append(quorate.combine(shards, rule, seed=run, **options).draws)
    return problem, runs


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_every_rule_is_right_on_gaussians(rule, seed):
    problem, runs = runs_on_gaussians(rule, seed)
    assert is_right(runs, problem.mean, problem.cov)
    assert not is_right(runs, problem.mean, 1.3 * problem.cov)


def test_uniform_weights_are_wrong_on_gaussians(seed):
    problem, runs = runs_on_gaussians("consensus", seed, weights="uniform")
    assert not is_right(runs, problem.mean, problem.cov)


def two_modes(n_shards, n_draws, rng):
    """Draws of shards with modes near -1.5 and 1.5, a grid, and the masses of their product."""
    grid = np.linspace(-4, 4, 1601)
    log_posterior = -np.square(2.25 - grid**2) / 0.6 + 0.4 * grid
    masses = [np.exp(log_posterior * share) for share in (1 / n_shards, 1)]
    part, whole = (mass / mass.sum() for mass in masses)
    draws = [
        rng.choice(grid, n_draws, p=part) + rng.uniform(-0.0025, 0.0025, n_draws)
        for _ in range(n_shards)
    ]
    return [x[:, None] for x in draws], grid, whole


def total_variation(draws, grid, masses):
    edges = np.linspace(-4, 4, 41)
    exact = np.histogram(grid, edges, weights=masses)[0]
    return np.abs(np.histogram(draws, edges)[0] / len(draws) - exact).sum() / 2


@pytest.mark.parametrize("rule", ["semiparametric", "weierstrass"])
def test_two_modes_stay_two(rule, rng):
    """Consensus, the control, does not keep them.

    Distances over 20 seeds had mean 0.825 and sd 0.007 for consensus, 0.224 and 0.014 for
    semiparametric, 0.118 and 0.021 for weierstrass: limits are 8 sds away or more.
    """
    shards, grid, masses = two_modes(4, 2000, rng)
    assert total_variation(quorate.combine(shards).draws, grid, masses) > 0.6
    assert total_variation(quorate.combine(shards, rule).draws, grid, masses) < 0.35


def test_wide_bandwidths_are_the_gaussian_rules(rng):
    """Means of 4,000 independent draws agree; a shard's own mean, 0.5 sds away, does not."""
    shards = [rng.normal(shift, 1.0, size=(4000, 1)) for shift in (0.0, 1.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wide = quorate.combine(shards, "semiparametric", bandwidth=50.0)
    gaussian = quorate.combine(shards, "gaussian")
    limit = norm.isf(FALSE_FAIL_RATE / 2) * np.sqrt(gaussian.covariance[0, 0] / 4000)
    assert np.abs(wide.mean - gaussian.mean)[0] < limit
    assert np.abs(shards[0].mean() - gaussian.mean)[0] > limit


# Bad input

GOOD = np.random.default_rng(0).normal(size=(20, 2))


def with_value(value, draw=4, coordinate=1):
    bad = GOOD.copy()
    bad[draw, coordinate] = value
    return bad


BAD = {
    "no shards": ([], "no shards.*at least one"),
    "one dimension": ([GOOD, GOOD[:, 0]], r"shard 1 have shape \(20,\).*draws\[:, None\]"),
    "other dimension": (
        [GOOD, GOOD[:, :1]],
        "Shard 1 has 1 coordinates and shard 0 has 2.*same number",
    ),
    "no coordinates": ([GOOD[:, :0]] * 2, "Shard 0 has 0 coordinates.*at least 1"),
    "nan": ([GOOD, with_value(np.nan)], "Draw 4 of coordinate 1 in shard 1 is nan.*sampler"),
    "infinity": ([with_value(-np.inf), GOOD], "Draw 4 of coordinate 1 in shard 0 is -inf.*sampler"),
    "no draws": ([GOOD, GOOD[:0]], "Shard 1 has 0 draws.*at least 2"),
    "one draw": ([GOOD, GOOD[:1]], "Shard 1 has 1 draws.*at least 2"),
    "words": ([GOOD, np.array([["a", "b"]])], "draws of shard 1 are of type <U1.*real numbers"),
    "complex": ([GOOD, GOOD * 1j], "draws of shard 1 are of type complex128.*real numbers"),
    "ragged": ([GOOD, [[1.0, 2.0], [3.0]]], "draws of shard 1 are not an array"),
    "beyond squares": (
        [GOOD * 1e200] * 2,
        "range of coordinate 0, .*e\\+200, cannot be squared.*other units",
    ),
}
WITHOUT_COVARIANCE = {
    "constant": (
        [GOOD, np.column_stack([GOOD[:, 0], np.full(20, 0.1)])],
        r"coordinate 1 is constant in shard 1 \(its range is 0\).*weights='uniform'",
    ),
    "next to constant": ([GOOD, GOOD * [1, 1e-120]], "coordinate 1 is constant in shard 1"),
    "few draws": ([GOOD, GOOD[:2]], "Shard 1 has 2 draws.*needs 3 or more.*weights='diagonal'"),
    "dependent": (
        [GOOD, np.column_stack([GOOD[:, 0], 3 - 2 * GOOD[:, 0]])],
        "covariance of shard 1 is singular: .*coordinate 0 and coordinate 1",
    ),
}


@pytest.mark.parametrize("rule", EVERY_RULE)
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(rule, name):
    shards, message = BAD[name]
    with pytest.raises(quorate.BadInputError, match=message):
        quorate.combine(shards, rule)


@pytest.mark.parametrize("rule", EVERY_RULE)
@pytest.mark.parametrize("name", WITHOUT_COVARIANCE)
def test_shards_without_a_covariance_are_named(rule, name):
    shards, message = WITHOUT_COVARIANCE[name]
    with pytest.raises(quorate.BadInputError, match=message):
        quorate.combine(shards, rule)
    combined = quorate.combine(shards, weights="uniform")
    assert np.isfinite(combined.draws).all()
    assert np.isfinite(combined.covariance).all()


def test_a_way_out_that_is_offered_works():
    for name in ("few draws", "dependent"):
        shards = WITHOUT_COVARIANCE[name][0]
        assert np.isfinite(quorate.combine(shards, weights="diagonal").draws).all()


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        ("median", {}, "No rule is named 'median'. Choose consensus"),
        ("swiss", {"bandwidth": 1.0}, "has no option bandwidth. It has none"),
        ("gaussian", {"weights": "full"}, "It has n_draws"),
        (
            "consensus",
            {"weights": "equal"},
            "Unknown weights 'equal'. Choose one of full, diagonal, uniform",
        ),
        ("semiparametric", {"bandwidth": 0.0}, "bandwidth must be a number above 0, not 0.0"),
        ("weierstrass", {"bandwidth": float("nan")}, "bandwidth must be a number above 0, not nan"),
        ("gaussian", {"n_draws": 0}, "n_draws must be at least 2, not 0"),
        ("weierstrass", {"n_draws": 2}, "n_draws must be more than 2, not 2"),
        ("gaussian", {"seed": -1}, "seed must be 0 or more, not -1"),
        ("gaussian", {"variables": ["mu"]}, r"variables=\['mu'\] needs draws with names"),
    ],
)
def test_bad_options_are_named(rule, options, message):
    with pytest.raises(quorate.BadInputError, match=message):
        quorate.combine([GOOD, GOOD + 0.1], rule, **options)


@pytest.mark.parametrize("rule", ["semiparametric", "weierstrass"])
def test_shards_that_disagree_are_told_of(rule):
    with pytest.warns(CombinationWarning, match=rule):
        combined = quorate.combine([GOOD, GOOD + 1e4, GOOD - 1e4], rule)
    assert np.isfinite(combined.draws).all()


def test_a_bandwidth_that_has_to_be_raised_is_told_of(rng):
    shards = Gaussians(2, 2, rng).draws([200] * 2, rng)
    with pytest.warns(CombinationWarning, match="was needed"):
        quorate.combine(shards, "weierstrass", bandwidth=1e-3)


@settings(max_examples=60)
@given(
    rule=st.sampled_from(EVERY_RULE),
    n_shards=st.integers(1, 4),
    dim=st.integers(1, 4),
    few=st.integers(2, 9),
    exponents=st.lists(st.integers(-60, 60), min_size=4, max_size=4),
    closeness=st.sampled_from([0, 1e-3, 1e-6, 1e-9, 1.0]),
    seed=st.integers(0, 2**32),
)
def test_never_a_silent_nan(rule, n_shards, dim, few, exponents, closeness, seed):
    rng = np.random.default_rng(seed)
    shards = []
    for shard in range(n_shards):
        draws = rng.standard_t(2, size=(few + shard, dim))
        draws[:, -1] = draws[:, 0] * (1 - closeness) + draws[:, -1] * closeness
        shards.append(draws * 10.0 ** np.array(exponents[:dim]) * 10.0 ** rng.integers(-9, 9))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombinationWarning)
            combined = quorate.combine(shards, rule)
    except quorate.BadInputError as error:
        found = str(error)
    else:
        values = (combined.draws, combined.mean, combined.covariance)
        found = "finite" if all(np.isfinite(v).all() for v in values) else "not finite"
    assert found == "finite" or found.endswith(".")


# Names and files


def named_posterior(rng, n_draws=60, n_chains=2, **others):
    shape = (n_chains, n_draws)
    values = {
        "mu": (("chain", "draw"), rng.normal(size=shape)),
        "beta": (("chain", "draw", "group"), rng.normal(size=(*shape, 2))),
        **others,
    }
    return xr.Dataset(values, {"group": ["a", "b"]})


def columns(posterior):
    mu, beta = posterior["mu"].to_numpy(), posterior["beta"].to_numpy()
    return np.column_stack([mu.ravel(), beta.reshape(-1, 2)])


def test_names_come_back(rng):
    shards = [named_posterior(rng, n_draws, n_chains) for n_draws, n_chains in ((60, 2), (40, 3))]
    trees = [xr.DataTree.from_dict({"posterior": shard}) for shard in shards]
    combined = quorate.combine(trees, "swiss")
    plain = quorate.combine([columns(shard) for shard in shards], "swiss")
    np.testing.assert_array_equal(combined.draws, plain.draws)
    np.testing.assert_array_equal(quorate.combine(shards, "swiss").draws, plain.draws)
    assert combined.names == ["mu", "beta[0]", "beta[1]"]
    assert plain.names == ["x[0]", "x[1]", "x[2]"]
    np.testing.assert_array_equal(combined.variables["beta"], plain.variables["x"][:, 1:])
    posterior = combined.posterior["posterior"]
    assert posterior["beta"].dims == ("chain", "draw", "group")
    assert list(posterior["group"].values) == ["a", "b"]
    assert posterior.attrs["rule"] == "swiss"
    assert "swiss" in repr(combined)
    only = quorate.combine(shards, "swiss", variables=["beta"])
    assert only.names == ["beta[0]", "beta[1]"]


def test_order_of_variables_and_dims_is_that_of_the_first_shard(rng):
    first, second = named_posterior(rng), named_posterior(rng)
    turned = second[["beta", "mu"]].transpose("group", "draw", "chain")
    expected = quorate.combine([first, second]).draws
    np.testing.assert_array_equal(quorate.combine([first, turned]).draws, expected)


def test_what_does_not_go_together_is_named(rng):
    good = named_posterior(rng)
    whole = good.assign(n=(("chain", "draw"), np.ones((2, 60), dtype=int)))
    cases = [
        ([good, good.drop_vars("mu")], r"Shard 1 has variables \['beta'\], but shard 0 has"),
        ([good, good.assign(extra=good["mu"])], "Shard 1 has variables .*extra"),
        ([good, good.assign_coords(group=["b", "a"])], r"group has labels \['b', 'a'\] in shard 1"),
        ([good, good.isel(group=[0])], "beta has sizes .* in shard 1"),
        ([good, columns(good)], "shard 1 is of type ndarray"),
        ([good.isel(chain=0), good], "mu in shard 0 has dims"),
        ([whole, whole], "n in shard 0 is of type int64"),
        (
            [xr.DataTree.from_dict({"prior": good})],
            r"Shard 0 has no group `posterior` \(its groups: prior\)",
        ),
        ([good.drop_vars(["mu", "beta"])] * 2, "no variables to combine"),
        ([good.assign(mu=good["mu"] * np.nan), good], "Draw 0 of mu in shard 0 is nan"),
        ([good, good.assign(mu=good["mu"] * 0)], "mu is constant in shard 1"),
    ]
    for shards, message in cases:
        with pytest.raises(quorate.BadInputError, match=message):
            quorate.combine(shards)
    with pytest.raises(
        quorate.BadInputError, match=r"No variable named `nu`.*shard 0 are mu, beta"
    ):
        quorate.combine([good, good], variables=["nu"])
    assert quorate.combine([whole, whole], variables=["mu"]).names == ["mu"]


def invoke(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)


@pytest.fixture
def files(rng, tmp_path):
    paths = []
    for shard in range(3):
        paths.append(tmp_path / f"shard{shard}.nc")
        tree = xr.DataTree.from_dict({"posterior": named_posterior(rng, 50 + 10 * shard)})
        tree.to_netcdf(paths[-1], engine="h5netcdf")
    return paths


@pytest.mark.parametrize("rule", EVERY_RULE)
def test_files_of_shards_become_one(rule, files, tmp_path):
    target = tmp_path / "out.nc"
    result = invoke("combine", *files, "--rule", rule, "-o", target, "--seed", 5)
    assert result.exit_code == 0
    assert "beta[1]" in result.stdout
    shards = [xr.load_datatree(file, engine="h5netcdf") for file in files]
    expected = quorate.combine(shards, rule, seed=5)
    with xr.open_datatree(target, engine="h5netcdf") as tree:
        posterior = tree["posterior"].to_dataset().load()
    np.testing.assert_array_equal(columns(posterior), expected.draws)
    assert posterior.attrs["assumes"] == expected.assumes


def test_what_files_cannot_be(files, tmp_path, rng):
    other = tmp_path / "other.nc"
    different = named_posterior(rng).rename({"mu": "nu"})
    xr.DataTree.from_dict({"posterior": different}).to_netcdf(other, engine="h5netcdf")
    prior = tmp_path / "prior.nc"
    xr.DataTree.from_dict({"prior": different}).to_netcdf(prior, engine="h5netcdf")
    text = tmp_path / "text.nc"
    text.write_text("no NetCDF")
    target = tmp_path / "out.nc"
    cases = [
        ([files[0], other, "-o", target], "Shard 1 has variables"),
        ([files[0], prior, "-o", target], "has no group `posterior`"),
        ([files[0], text, "-o", target], "cannot be read as NetCDF"),
        ([files[0], tmp_path / "none.nc", "-o", target], "No file named"),
        ([*files, "-o", files[1]], "one of the files to combine"),
        ([*files, "-o", tmp_path / "nowhere" / "out.nc"], "does not exist. Create it first"),
        ([*files, "-o", target, "--rule", "median"], "No rule is named 'median'"),
        (
            [*files, "-o", target, "--rule", "swiss", "--weights", "full"],
            "has no option weights",
        ),
        ([*files, "-o", target, "--variables", "mu,nu"], "No variable named `nu`"),
    ]
    for arguments, message in cases:
        result = invoke("combine", *arguments)
        assert result.exit_code == 2, arguments
        assert message in result.stderr
        assert not target.exists()


def test_options_reach_the_rule(files, tmp_path):
    target = tmp_path / "out.nc"
    options = ("--rule", "weierstrass", "--bandwidth", "0.5", "--draws", "30", "--variables", "mu")
    assert invoke("combine", *files, "-o", target, *options).exit_code == 0
    with xr.open_datatree(target, engine="h5netcdf") as tree:
        assert dict(tree["posterior"].sizes) == {"chain": 1, "draw": 30}


def test_warnings_are_printed(tmp_path, rng):
    files = [tmp_path / "left.nc", tmp_path / "right.nc"]
    for file, shift in zip(files, (0, 1e4), strict=True):
        tree = xr.DataTree.from_dict({"posterior": named_posterior(rng) + shift})
        tree.to_netcdf(file, engine="h5netcdf")
    result = invoke("combine", *files, "--rule", "weierstrass", "-o", tmp_path / "out.nc")
    assert result.exit_code == 0
    assert "Warning: weierstrass" in result.stderr

"""Whole inquiries: evidence, draws and chains of posteriors in closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest, norm

from helpers.assertions import FALSE_FAIL_RATE
from helpers.passes import (
    Posterior,
    answer,
    answer_all,
    begun,
    gaussian,
    inquired,
    random_gaussian,
    skewed,
)
from quorate.errors import BadInputError, ImproperError
from quorate.numerics.ess import ess_of_chains
from quorate.passes.inquiry import Inquiry, product_of
from quorate.passes.one_question import OneQuestion

FEW = 20
GAUSS = gaussian(np.array([1.0, -2.0]), np.array([[1.0, 0.5], [0.5, 2.0]]))
LOG_EVIDENCE = 3.7


def evidence_of(posterior, seed):
    """Of the first points that are weighed; draws are not needed."""
    inquiry = begun(posterior, 1, seed)
    answer_all(inquiry, posterior, lambda: inquiry.evidence is not None)
    return inquiry.evidence


# ---------------------------------------------------------------- evidence


@pytest.mark.parametrize("dim", [1, 3, 10])
@pytest.mark.parametrize("with_gradient", [True, False])
def test_the_evidence_of_a_gaussian_is_known(rng, seed, dim, with_gradient):
    """Within 4.9 standard errors, but once in 10⁶; an evidence of 1 more is the control."""
    posterior = gaussian(*random_gaussian(rng, dim)).shifted(LOG_EVIDENCE)
    found = inquired(posterior, 1, seed, with_gradient=with_gradient).evidence
    limit = norm.isf(FALSE_FAIL_RATE / 2) * found.error
    assert abs(found.value - LOG_EVIDENCE) < limit < 0.5
    assert abs(found.value - LOG_EVIDENCE - 1) > limit


def test_standard_errors_of_the_evidence_are_right(seed):
    """Over 100 seeds, squared z-scores sum to χ²₁₀₀ for a Gaussian.

    The limits are those of χ²₁₀₀ at a rate of 10⁻⁶, with 20 % to spare for the errors, which are
    estimates. Errors that were too small or too large by a factor of 2 are the control.
    """
    found = [evidence_of(GAUSS, 1000 * seed + i) for i in range(100)]
    squares = sum((each.value / each.error) ** 2 for each in found)
    low, high = chi2(100).ppf([FALSE_FAIL_RATE / 2, 1 - FALSE_FAIL_RATE / 2])
    assert 0.8 * low < squares < 1.2 * high
    assert 4 * squares > 1.2 * high
    assert squares / 4 < 0.8 * low


def test_the_evidence_of_a_skewed_posterior_is_known(seed):
    """It is 1; the weights are uneven but bounded by tails that are lighter than those of t₇."""
    found = evidence_of(skewed(), seed)
    limit = norm.isf(FALSE_FAIL_RATE / 2) * found.error
    assert abs(found.value) < limit
    assert found.error < 0.5


# ---------------------------------------------------------------- draws


@pytest.mark.parametrize("posterior", [GAUSS, GAUSS.where(lambda x: x[:, 0] > 0)])
def test_draws_have_the_law_of_the_posterior(seed, posterior):
    """The last draw of every chain, x₀ of which is normal, cut off at 0 in the second case.

    Refused once in 10⁶ by a Kolmogorov-Smirnov test; the law of the other case is the control.
    """
    inquiry = inquired(posterior, 16 * 128, seed, with_gradient=True)
    last = chains_of(inquiry)[:, -1, 0]
    assert len(last) == 128
    whole = norm(1.0).cdf
    laws = [whole, lambda x: np.maximum((whole(x) - whole(0.0)) / (1 - whole(0.0)), 0.0)]
    is_cut = posterior is not GAUSS
    assert kstest(last, laws[is_cut]).pvalue > FALSE_FAIL_RATE
    draws = inquiry.draws()[:, 0]
    assert (draws.min() > 0) == is_cut
    # All draws: their mean, by their ESS, and that of the other case as the control
    error = draws.std() / np.sqrt(ess_of_chains(draws, inquiry.n_chains))
    means = [1.0, 1.0 + norm.pdf(1.0) / norm.cdf(1.0)]
    near = [abs(draws.mean() - mean) < 4.9 * error for mean in means]
    assert near == [not is_cut, is_cut]


@given(st.integers(1, 700), st.integers(0, 2**32))
@settings(max_examples=25)
def test_draws_and_chains_agree_whatever_their_number(n_draws, key):
    inquiry = inquired(GAUSS, n_draws, key)
    assert_agree(inquiry, n_draws)


@pytest.mark.parametrize("n_draws", [1, 2, 7, 20, 127, 131, 997, 1024])
def test_draws_and_chains_agree(seed, n_draws):
    """997 is a prime: no number of chains divides it."""
    assert_agree(inquired(GAUSS, n_draws, seed), n_draws)


def chains_of(inquiry):
    """Draws of all chains, as far as all have come."""
    return np.concatenate([each.draws[:, : inquiry.n_steps] for each in inquiry.ensembles])


def assert_agree(inquiry, n_draws):
    n_chains, n_steps = inquiry.n_chains, inquiry.n_steps
    assert inquiry.phase == "done"
    assert not inquiry.open
    assert inquiry.n_complete == n_draws
    assert 2 <= n_chains <= 128
    assert 0 <= n_chains * n_steps - n_draws < n_chains  # no chain makes a draw too many
    chains, draws = chains_of(inquiry), inquiry.draws()
    assert chains.shape == (n_chains, n_steps, 2)
    assert draws.shape == (n_draws, 2)
    for i in {0, n_draws // 2, n_draws - 1}:
        np.testing.assert_array_equal(draws[i], chains[i % n_chains, i // n_chains])
    assert len(np.unique(draws[:, 0])) == n_draws


def test_draws_come_in_order_and_do_not_change(seed):
    whole = inquired(GAUSS, 300, seed).draws()
    inquiry, reached = begun(GAUSS, 300, seed), [0]
    assert inquiry.draws().shape == (0, 2)
    while inquiry.open:
        phase = inquiry.phase
        assert answer(inquiry, GAUSS, min(inquiry.open)).phase == phase
        n = inquiry.n_complete
        assert inquiry.draws().tobytes() == whole[:n].tobytes()
        reached.append(n)
    assert reached == sorted(reached)
    assert reached[-1] == 300


def test_lanes_may_be_answered_in_any_order(rng, seed):
    whole = inquired(GAUSS, 200, seed)
    inquiry = begun(GAUSS, 200, seed)
    while inquiry.open:
        answer(inquiry, GAUSS, int(rng.choice(sorted(inquiry.open))))
    assert inquiry.draws().tobytes() == whole.draws().tobytes()
    assert inquiry.n_passes == whole.n_passes


def test_questions_of_a_lane_are_numbered(seed):
    inquiry = begun(GAUSS, 50, seed)
    numbers = {0: [], 1: []}
    phases = []
    while inquiry.open:
        asked = answer(inquiry, GAUSS, min(inquiry.open))
        numbers[asked.lane].append(asked.number)
        phases.append(asked.phase)
        assert (asked.scales is not None) == (asked.phase == "fit")
    assert all(found == list(range(len(found))) for found in numbers.values())
    assert phases == sorted(phases, key=("fit", "weigh", "draw").index)
    assert inquiry.n_passes == len(phases)


@pytest.mark.parametrize("shift", [1000.0, -(2.0**20)])
def test_a_constant_in_the_log_density_changes_no_draw(seed, shift):
    """Values are rounded to multiples of 2⁻²⁰, as passes do, so that adding is exact."""

    def rounded(constant):
        values = GAUSS.shifted(0).values
        on_grid = lambda x: np.round(values(x) * 2**20) / 2**20 + constant  # noqa: E731
        return type(GAUSS)(2, on_grid, GAUSS.gradients)

    one, other = (inquired(rounded(constant), 200, seed) for constant in (0.0, shift))
    assert one.draws().tobytes() == other.draws().tobytes()
    assert other.evidence.value - one.evidence.value == pytest.approx(shift)


@pytest.mark.parametrize(("first", "then"), [(20, 90), (100, 101), (7, 700)])
def test_extending_continues_the_same_chains(seed, first, then):
    """Extended in the end or in the middle, it gives the same, and begins with what was there."""
    inquiry = inquired(GAUSS, first, seed)
    before = inquiry.draws()
    inquiry.extend(first - 1)
    assert inquiry.n_draws == first
    inquiry.extend(then)
    answer_all(inquiry, GAUSS)
    assert inquiry.draws()[:first].tobytes() == before.tobytes()
    assert inquiry.n_complete == then
    sooner = begun(GAUSS, first, seed)
    answer_all(sooner, GAUSS, lambda: sooner.n_complete > 0)
    sooner.extend(then)
    answer_all(sooner, GAUSS)
    assert sooner.draws().tobytes() == inquiry.draws().tobytes()


# ---------------------------------------------------------------- without density


@pytest.mark.parametrize("with_gradient", [True, False])
def test_a_posterior_without_density_is_refused_in_words(seed, with_gradient):
    nowhere = GAUSS.where(lambda x: np.zeros(len(x), dtype=bool))
    with pytest.raises(BadInputError, match=r"no density at most points.*give it a start"):
        inquired(nowhere, FEW, seed, with_gradient=with_gradient)


def test_density_in_a_corner_is_found(seed):
    """A box of one twentieth of the first points' area; draws stay inside, and fill it."""
    box = GAUSS.where(lambda x: np.all((x > 0.0) & (x < 1.0), axis=1))
    inquiry = inquired(box, 200, seed)
    draws = inquiry.draws()
    assert np.all((draws > 0) & (draws < 1))
    assert np.all(np.ptp(draws, axis=0) > 0.5)


# ---------------------------------------------------------------- the first question


def fits_of_shards(rng, n_shards, dim):
    return [
        (mean, np.linalg.cholesky(cov))
        for mean, cov in (random_gaussian(rng, dim) for _ in range(n_shards))
    ]


@pytest.mark.parametrize("dim", [1, 4])
def test_the_product_of_fits(rng, dim):
    """Precisions add up, and so do precision-weighted means."""
    fits = fits_of_shards(rng, 3, dim)
    precisions = [np.linalg.inv(lower @ lower.T) for _, lower in fits]
    cov = np.linalg.inv(sum(precisions))
    mean = cov @ sum(p @ m for p, (m, _) in zip(precisions, fits, strict=True))
    found = product_of(fits, 3)
    lower = np.linalg.cholesky(cov)
    assert np.abs(np.linalg.solve(lower, found.mean - mean)).max() < 1e-2
    np.testing.assert_allclose(found.covariance, cov, rtol=1e-2, atol=1e-2 * np.abs(cov).max())


def test_fits_stand_for_shards_that_have_none(rng):
    """With one of two missing, the mean is the same, and variances are half as large."""
    fits = fits_of_shards(rng, 2, 3)
    all_there, half = product_of(fits, 2), product_of(fits, 4)
    np.testing.assert_allclose(half.mean, all_there.mean, atol=1e-2)
    np.testing.assert_allclose(half.covariance, all_there.covariance / 2, rtol=1e-2, atol=1e-2)


def survey_of(mode, lower):
    return {"mode": mode, "lower": lower}


def test_an_inquiry_begins_around_the_fits_of_shards(rng, seed):
    """Wherever it begins, it ends up with the posterior; a start near it takes fewer passes."""
    mean, cov = np.array([1.0, -2.0]), np.array([[1.0, 0.5], [0.5, 2.0]])
    lower = np.linalg.cholesky(cov)
    right = survey_of(mean, lower * np.sqrt(3))
    surveys = {0: right, 1: right, 2: right}
    inquiry = inquired(GAUSS, FEW, seed, surveys=surveys)
    assert inquiry.fit.n_passes == 1
    some = inquired(GAUSS, FEW, seed, surveys={**surveys, 1: {}})
    assert some.fit.n_passes == 1
    far = inquired(GAUSS, FEW, seed, surveys={0: {}, 1: {}, 2: {}}, start=np.full(2, 30.0))
    assert far.fit.n_passes > 2
    for found in (inquiry, some, far):
        np.testing.assert_allclose(found.fit.base.mean, mean, atol=2e-3)
        np.testing.assert_allclose(found.fit.base.covariance, cov, atol=4e-3)


def test_the_order_of_surveys_does_not_matter(rng, seed):
    fits = {shard: survey_of(*fit) for shard, fit in enumerate(fits_of_shards(rng, 4, 2))}
    turned = {shard: fits[shard] for shard in (2, 0, 3, 1)}
    one, other = (inquired(GAUSS, FEW, seed, surveys=found) for found in (fits, turned))
    assert one.draws().tobytes() == other.draws().tobytes()


# ---------------------------------------------------------------- one question


def test_one_question_is_asked_and_answered():
    points = np.arange(6.0).reshape(3, 2)
    question = OneQuestion(points)
    assert not question.open
    question.begin({})
    asked = question.open[0]
    np.testing.assert_array_equal(asked.points, points)
    assert asked.scales is None
    assert question.n_complete == 0
    question.take(0, np.array([1.0, 2.0, 3.0]))
    assert question.n_complete == 3
    assert not question.open


def test_a_flat_direction_is_named(seed):
    """The posterior does not depend on its second coordinate at all."""
    flat = Posterior(
        2, lambda x: -0.5 * x[:, 0] ** 2, lambda x: np.stack([-x[:, 0], 0 * x[:, 0]], axis=1)
    )
    inquiry = Inquiry(np.zeros(2), ["a", "b"], 10, seed, has_gradient=True)
    inquiry.begin({0: {}})
    with pytest.raises(ImproperError, match="b"):
        answer_all(inquiry, flat)


@pytest.mark.parametrize(("dim", "says"), [(10, False), (60, True)])
def test_many_coordinates_without_gradients_may_be_why_there_is_no_fit(dim, says, seed):
    """Above 40 coordinates only the scale of each is fitted, and the error says so."""
    flat = Posterior(dim, lambda x: -0.5 * np.sum(x[:, 1:] ** 2, axis=1))
    with pytest.raises(ImproperError, match=r"mostly along x\[0\]") as raised:
        inquired(flat, 10, seed)
    assert ("no fit without gradients" in str(raised.value)) == says

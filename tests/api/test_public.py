"""What users rely on: names, imports, errors that travel."""

import pickle
import subprocess
import sys

import pytest

import quorate
from quorate import errors
from quorate.models import linear


def test_public_names():
    assert sorted(quorate.__all__) == [
        "Adaptive",
        "BadInputError",
        "CMC",
        "Coded",
        "Combined",
        "Cut",
        "Faults",
        "GaussianSubposteriors",
        "Grouped",
        "Plan",
        "Processes",
        "QuorateError",
        "Ray",
        "Result",
        "SimulationSummary",
        "Until",
        "Verdict",
        "check",
        "combine",
        "design_in_place",
        "gaussian_mean_model",
        "load",
        "paper_subposteriors",
        "plan",
        "resume",
        "sample",
        "simulate",
        "stream",
        "update",
    ]
    assert all(hasattr(quorate, name) for name in quorate.__all__)


def test_import_is_light():
    heavy = {
        *("matplotlib", "rich", "click", "cloudpickle", "pandas", "polars", "pyarrow", "xarray"),
        *("arviz", "jax", "blackjax", "numpyro", "pymc", "ray", "scipy.stats", "scipy.optimize"),
        *("starlette", "uvicorn"),
    }
    loaded = f"import quorate, quorate.samplers, sys; print({heavy} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "error",
    [
        errors.BadInputError("redundancy must be at most 5, not 7."),
        errors.UndecodableError(received={0, 2}, n_lacking=1, among={3}),
        errors.UndecodableError(received=set(), n_lacking=2, among={0, 1}),
        errors.SingularCovarianceError(),
        errors.UnreachableError("cmc", 10, frozenset({3})),
        errors.UnreachableError("grouped", 10, frozenset({2, 3})),
        errors.WorkerFailedError(2, 3, "ValueError", "no", "Traceback"),
        errors.ImproperError("the log density is flat", ["beta[1]"], 7),
        errors.NotConvergedError("no mode was found in 15 steps", ["beta[1]"], None),
        errors.NotANumberError.at_point(float("nan"), [0.5] * 9),
        errors.WrongShapeError("log_prior returned an array of shape () for 3 points."),
        errors.MissingExtraError("jax", "jax"),
        errors.DeviceMemoryError("gpu:0"),
    ],
)
def test_errors_survive_pickling(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_a_device_without_memory_does_not_refuse_the_model():
    """Other workers may have enough, so the run goes on with them."""
    assert errors.is_refusal("BadInputError")
    assert not errors.is_refusal("DeviceMemoryError")


def test_messages_name_the_way_out():
    error = errors.UndecodableError(received={0, 2}, n_lacking=1, among={4, 5})
    assert str(error) == (
        "The answers of workers 0, 2 do not decode. At least 1 more must come from workers 4, 5: "
        "wait, or raise `redundancy`."
    )
    assert "or use a scheme that has it" in str(errors.UnreachableError("cmc", 10, {3}))
    assert errors.named_workers(range(20)) == "workers 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"


def test_simulate_wants_as_many_subposteriors_as_workers():
    with pytest.raises(quorate.BadInputError, match="3 subposteriors for 4 workers"):
        quorate.simulate("cmc", 4, subposteriors=quorate.paper_subposteriors(3))


@pytest.mark.parametrize("method", ["exact", "merge"])
def test_models_of_very_many_coordinates_are_refused_before_rows_are_read(method, tmp_path):
    """500 coefficients and a scale are one too many; 499 are refused only for lack of rows."""
    rows = tmp_path / "nowhere.csv"
    with pytest.raises(errors.BadInputError, match=r"501 coordinates.*500.*fewer columns"):
        quorate.sample(linear(500), rows, workers=2, draws=10, method=method)
    with pytest.raises(errors.BadInputError, match="nowhere"):
        quorate.sample(linear(499), rows, workers=2, draws=10, method=method)

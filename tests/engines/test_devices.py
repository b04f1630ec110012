"""Workers on devices: how they are dealt out, and that draws are those of cores."""

import os
import signal

import numpy as np
import pytest

import quorate
from quorate import Grouped, Processes
from quorate.engines.devices import checked, dealt
from quorate.errors import BadInputError, DeviceWarning
from quorate.models import Real, from_functions, logistic
from quorate.models.protocol import on_device


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.parametrize(
    ("devices", "n", "expected"),
    [
        ("cpu", 2, ["cpu", "cpu"]),
        ("gpu", 3, ["gpu:0", "gpu:1", "gpu:0"]),
        ("gpu:1", 2, ["gpu:1", "gpu:1"]),
        ("cpu,gpu,cpu,gpu", 4, ["cpu", "gpu:0", "cpu", "gpu:1"]),
    ],
)
def test_gpus_are_dealt_out(two_gpus, devices, n, expected):
    assert dealt(devices, n) == expected


def test_without_a_gpu_cores_compute_and_this_is_said(no_gpu):
    with pytest.warns(DeviceWarning, match="This machine has no NVIDIA GPU. Its cores compute"):
        assert dealt("gpu,cpu,jax", 3) == ["cpu", "cpu", "jax"]


def test_a_device_for_each_process():
    with pytest.raises(BadInputError, match="devices names 2 devices for 3 processes"):
        dealt("cpu,cpu", 3)


@pytest.mark.parametrize("devices", ["tpu", "gpu:x", "cpu:1", "", "gpu,,cpu"])
def test_names_of_devices(devices):
    with pytest.raises(BadInputError, match="is no device"):
        Processes(devices=devices)


def test_a_list_of_devices():
    assert Processes(devices=["gpu:0", "cpu"]).devices == checked("gpu:0,cpu") == "gpu:0,cpu"


def test_a_model_for_numpy_is_evaluated_on_cores_and_this_is_said():
    model = from_functions(lambda p: 0.0, lambda p, rows: 0.0, {"a": Real()})
    with pytest.warns(DeviceWarning, match="is evaluated by numpy, on a core"):
        assert on_device(model) is model


# ---------------------------------------------------------------- runs

WORKERS, DRAWS = 3, 400  # so few draws that ensembles are as large as those of cores


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    columns = np.column_stack([np.ones(900), rng.standard_normal((900, 3))])
    response = rng.random(900) < 1 / (1 + np.exp(-columns @ [0.5, 1.0, -1.0, 0.2]))
    return {"X": columns, "y": response.astype(float)}


def drawn(rows, seed, engine, **settings):
    usual = {"workers": WORKERS, "draws": DRAWS, "check": False, "progress": False}
    return quorate.sample(logistic(4), rows, engine=engine, seed=seed, **{**usual, **settings})


def test_a_device_gives_the_draws_of_cores(rows, seed, monkeypatch):
    """Bit for bit: rounding to the grid of sums hides the device. Also two devices at once."""
    flags = "--xla_force_host_platform_device_count=2"
    monkeypatch.setenv("XLA_FLAGS", flags)
    cores = drawn(rows, seed, Processes())
    for devices in ("jax", "jax:0,jax:1,cpu"):
        found = drawn(rows, seed, Processes(devices=devices))
        np.testing.assert_array_equal(found.unconstrained, cores.unconstrained)


def test_a_device_that_dies_hands_its_shards_to_cores(rows, seed):
    settings = {"scheme": Grouped(redundancy=WORKERS)}
    undisturbed = drawn(rows, seed, Processes(), **settings)
    killed = []

    def kill(progress):
        if progress.passes and not killed:
            killed.append(progress.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    engine = Processes(devices="jax,cpu,cpu", restarts=0)
    found = drawn(rows, seed, engine, progress=kill, every=0.0, **settings)
    assert killed
    np.testing.assert_array_equal(found.unconstrained, undisturbed.unconstrained)


def test_an_ensemble_that_fills_a_device(rows, seed, tmp_path):
    """The journal keeps how large the ensembles are: a run that is resumed goes on with them."""
    few = {name: array[:64] for name, array in rows.items()}
    engine = Processes(devices="jax")
    first = drawn(few, seed, engine, workers=1, draws=16_000, run_dir=tmp_path / "run")
    assert first.n_chains > 2 * 64
    more = quorate.resume(
        tmp_path / "run", draws=24_000, engine=Processes(), check=False, progress=False
    )
    assert more.n_chains == first.n_chains
    np.testing.assert_array_equal(more.unconstrained[:16_000], first.unconstrained)

"""Workers on devices: how they are dealt out, and that draws are those of cores."""

import os
import signal

import numpy as np
import pytest

import quorate
from quorate import Grouped, Processes
from quorate.engines import devices
from quorate.engines.devices import checked, dealt
from quorate.errors import BadInputError, DeviceWarning
from quorate.journal import JournalReader, PassRecord
from quorate.models import Real, from_functions, logistic
from quorate.models.protocol import on_device
from quorate.models.subposterior import Target
from quorate.protocol.inquirer import SURVEYS


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


def test_a_gpu_that_is_not_there(two_gpus):
    with pytest.raises(BadInputError, match="no device gpu:2: this machine has 2 GPUs"):
        dealt("gpu:1,gpu:2", 2)


@pytest.mark.parametrize(("devices", "compiles"), [("cpu,cpu", False), ("cpu,gpu", True)])
def test_only_devices_other_than_cores_compile(devices, compiles):
    assert Processes(devices=devices).compiles == compiles


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


SLOW = 1.0  # seconds


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({64: 1e-4, 512: 1e-4, 4096: 1e-4}, 4096),
        ({64: 1e-4, 512: 1e-3, 4096: 2e-2}, 512),
        ({64: 1e-2, 512: 8e-2, 4096: SLOW}, 64),
        ({64: SLOW}, 64),
    ],
    ids=["an empty device", "one that 512 fill", "one that 64 fill", "a slow one"],
)
def test_how_many_points_fill_a_device(monkeypatch, seconds, expected):
    """The fewest that have most of the best rate; more than slow ones are not tried."""
    monkeypatch.setattr(devices, "_seconds", lambda target, points: seconds[len(points)])
    assert devices.points_that_fill(Target(logistic(2), {}, 1), None) == expected


# ---------------------------------------------------------------- runs

WORKERS, DRAWS = 3, 400  # so few draws that ensembles are as large as those of cores, always


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
    for names in ("jax", "jax:0,jax:1,cpu"):
        found = drawn(rows, seed, Processes(devices=names))
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


N_CHAINS = {64: 128, 512: 1000, 4096: 2000}  # by points that fill a device, for 16,000 draws


def points_that_filled(run):
    """What the survey of the only shard has measured."""
    with JournalReader(run) as reader:
        passes = [record for record in reader.records() if isinstance(record, PassRecord)]
    (survey,) = (each for each in passes if each.lane == SURVEYS)
    return int(survey.arrays["at_once"])


def test_an_ensemble_that_fills_a_device(rows, seed, tmp_path):
    """The journal keeps how large the ensembles are: a run that is resumed goes on with them."""
    few = {name: array[:64] for name, array in rows.items()}
    engine = Processes(devices="jax")
    first = drawn(few, seed, engine, workers=1, draws=16_000, run_dir=tmp_path / "run")
    assert first.n_chains == N_CHAINS[points_that_filled(tmp_path / "run")]
    more = quorate.resume(
        tmp_path / "run", draws=24_000, engine=Processes(), check=False, progress=False
    )
    assert more.n_chains == first.n_chains
    np.testing.assert_array_equal(more.unconstrained[:16_000], first.unconstrained)

"""Devices that workers compute on: cores, or GPUs that are dealt out among processes.

A device is named `cpu`, `gpu`, `gpu:1`, or `jax`. The last has models compiled by JAX for a core,
as they are for a GPU: it serves tests on machines that have no GPU.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from quorate._extras import is_installed, jax_in_float64
from quorate._warnings import warn
from quorate.errors import BadInputError, DeviceWarning, require
from quorate.models.device import SIZES
from quorate.models.subposterior import Target, log_densities

CPU = "cpu"
_KINDS = (CPU, "gpu", "jax")
_PER_PASS = 1e-3  # seconds that a pass takes besides its evaluation
_ENOUGH = 0.8  # of the best rate
_SLOW = 0.05  # seconds for an evaluation beyond which more points at a time gain nothing


def checked(devices: str | Sequence[str]) -> str:
    """Names of devices, joined by commas."""
    names = devices.split(",") if isinstance(devices, str) else list(devices)
    for name in names:
        kind, _, number = name.partition(":")
        if kind not in _KINDS or (number and not number.isdecimal()) or (number and kind == CPU):
            raise BadInputError(
                f"{name!r} is no device. Use 'cpu', 'gpu', or one of these for each process, such "
                "as 'gpu:0,cpu,cpu'."
            )
    return ",".join(names)


def dealt(devices: str, n_processes: int) -> list[str]:
    """The device of each process. GPUs without a number are dealt out in turn."""
    names = devices.split(",")
    names = names * n_processes if len(names) == 1 else names
    require(
        len(names) == n_processes,
        f"devices names {len(names)} devices for {n_processes} processes. Name one for each "
        "process, or one for all.",
    )
    n_gpus = len(_gpus())
    if n_gpus == 0 and any(name.startswith("gpu") for name in names):
        warn("This machine has no NVIDIA GPU. Its cores compute instead.", DeviceWarning)
        return [CPU if name.startswith("gpu") else name for name in names]
    for name in names:
        number = name.partition(":")[2]
        require(
            not name.startswith("gpu") or int(number or 0) < n_gpus,
            f"There is no device {name}: this machine has {n_gpus} GPUs, the first of them gpu:0.",
        )
    unnumbered = [i for i, name in enumerate(names) if name == "gpu"]
    for turn, i in enumerate(unnumbered):
        names[i] = f"gpu:{turn % n_gpus}"
    return names


def use(device: str) -> bool:
    """Have this process compute on a device, before it imports JAX; whether JAX has it."""
    kind, _, number = device.partition(":")
    if kind == "gpu" and _takes_gpu(number):
        return True
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if kind == "jax":
        jax = jax_in_float64()
        found, place = jax.devices(), int(number or 0)
        require(place < len(found), f"There is no device {device}: JAX has {len(found)} here.")
        jax.config.update("jax_default_device", found[place])
    return kind == "jax"


def points_that_fill(target: Target, around: np.ndarray | None) -> int:
    """How many points a device should be asked for at a time, from the time that it takes.

    What it compiles for that, passes will use.
    """
    centre = target.model.initial() if around is None else around
    rates: dict[int, float] = {}
    for n in SIZES[1:]:
        seconds = _seconds(target, np.tile(centre, (n, 1)))
        rates[n] = n / (seconds + _PER_PASS)
        if seconds > _SLOW:
            break
    return next(n for n, rate in rates.items() if rate >= _ENOUGH * max(rates.values()))


def _seconds(target: Target, points: np.ndarray) -> float:
    """Seconds of an evaluation; the first one, which may compile, is left out."""
    log_densities(target, points)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        log_densities(target, points)
        times.append(time.perf_counter() - start)
    return min(times)


def _gpus() -> list[str]:
    """GPUs of this machine that we may use, by the names that CUDA has for them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    numbers = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
    return sorted(numbers, key=int)


def _takes_gpu(number: str) -> bool:
    """Take a GPU for this process alone, and see whether JAX can use it."""
    if number:
        os.environ["CUDA_VISIBLE_DEVICES"] = _gpus()[int(number)]
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others may share it
    os.environ.pop("JAX_PLATFORMS", None)  # the coordinator may have left the GPU to us by it
    why = "JAX is not installed"
    if is_installed("jax"):
        jax = jax_in_float64()
        try:
            jax.config.update("jax_default_device", jax.devices("gpu")[0])
        except RuntimeError as error:
            why = " ".join(str(error).split())
        else:
            with suppress(RuntimeError):  # a user without a home has no folder for that
                jax.config.update("jax_compilation_cache_dir", str(_cache()))
            return True
    warn(
        f"A worker was to compute on a GPU, but JAX cannot use it ({why}). It computes on cores: "
        "install jax[cuda13], or what suits your driver.",
        DeviceWarning,
    )
    return False


def _cache() -> Path:
    """Folder for what JAX has compiled, for later runs on this machine."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "quorate" / "jax"

"""Plates of a NumPyro program as axes of its variables."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from quorate.models.axes import Axes


def axes_of_trace(
    trace: Mapping[str, Any], names: Iterable[str], sizes: Mapping[str, int] | None = None
) -> Axes:
    """Axes of the variables `names` of a trace: an axis along a plate has the name of the plate.

    Entries along a plate are numbered from 0. Axes of events have the names that the site gives
    them, `infer={"event_dims": ["month"]}`, as ArviZ reads them. `sizes` are those of plates whose
    size in the trace is not that of the whole program.
    """
    dims: dict[str, tuple[str, ...]] = {}
    coords: dict[str, Any] = {}
    for name in names:
        found = _plates(trace[name])
        if not found and not _event_dims(trace[name]):
            continue
        shape = np.shape(trace[name]["value"])
        own = [f"{name}_dim_{axis}" for axis in range(len(shape))]
        for axis, plate in found.items():
            own[axis] = plate
            coords[plate] = np.arange((sizes or {}).get(plate, shape[axis]))
        events = _event_dims(trace[name])
        own[len(own) - len(events) :] = events
        dims[name] = tuple(own)
    return Axes(dims, coords)


def _plates(site: Mapping[str, Any]) -> dict[int, str]:
    """The plate of each axis that runs along one; none if the shape of the value says otherwise."""
    shape = np.shape(site["value"])
    n_event = site["fn"].event_dim if site["type"] == "sample" else 0
    found = {len(shape) - n_event + f.dim: (f.name, f.size) for f in site["cond_indep_stack"]}
    fits = all(axis >= 0 and shape[axis] == size for axis, (_, size) in found.items())
    return {axis: name for axis, (name, _) in found.items()} if fits else {}


def _event_dims(site: Mapping[str, Any]) -> list[str]:
    if site["type"] != "sample":
        return []
    named = list(map(str, (site.get("infer") or {}).get("event_dims", ())))
    return named if len(named) == site["fn"].event_dim else []

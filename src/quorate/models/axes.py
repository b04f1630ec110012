"""Names of the axes of variables and labels along them, as xarray has them: dims and coords."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.models.protocol import Model

Labels = NDArray[Any]
_KINDS: dict[str, Any] = {
    "text": np.str_,
    "flag": np.bool_,
    "whole": np.int64,
    "real": np.float64,
    "time": "M8[ns]",
}
_KIND_OF = {"U": "text", "b": "flag", "i": "whole", "u": "whole", "f": "real", "M": "time"}
_MOST_CONSTANTS = 100_000  # numbers that are kept with a run


@dataclass(frozen=True, eq=False)
class Axes:
    """Dims and coords of the variables of a model.

    Parameters
    ----------
    dims
        Names of the axes of variables, by variable. Variables that are not here have axes without
        a name.
    coords
        Labels along named axes.
    gathered
        Variables that are made of scalars, such as a factor that is made of the coefficients of its
        levels: names of these scalars, in the order of the entries.
    constants
        Arrays that the model was given besides its rows, by name. `dims` has their axes too.
    """

    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    coords: Mapping[str, Labels] = field(default_factory=dict)
    gathered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, Labels] = field(default_factory=dict)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """Shape that the labels of a variable imply; None if an axis has none."""
        dims = self.dims.get(name, ("",))
        known = all(dim in self.coords for dim in dims)
        return tuple(len(self.coords[dim]) for dim in dims) if known else None

    def as_json(self) -> dict[str, Any]:
        """JSON values, for the journal. Constants are left out if they are many."""
        n_constants = sum(np.size(array) for array in self.constants.values())
        kept = self.constants if n_constants <= _MOST_CONSTANTS else {}
        return {
            "dims": {name: list(dims) for name, dims in self.dims.items()},
            "coords": {name: _encoded(labels) for name, labels in self.coords.items()},
            "gathered": {name: list(parts) for name, parts in self.gathered.items()},
            "constants": {
                name: {**_encoded(np.ravel(array)), "shape": list(np.shape(array))}
                for name, array in kept.items()
            },
        }

    @classmethod
    def from_json(cls, kept: Any) -> "Axes":
        """What `as_json` wrote. Raises `ValueError`, `TypeError` or `LookupError` for the rest."""
        if kept is None:
            return cls()
        constants = {
            str(name): _decoded(one).reshape(tuple(map(int, one["shape"])))
            for name, one in kept["constants"].items()
        }
        return cls(
            {str(name): tuple(map(str, dims)) for name, dims in kept["dims"].items()},
            {str(name): _decoded(labels) for name, labels in kept["coords"].items()},
            {str(name): tuple(map(str, parts)) for name, parts in kept["gathered"].items()},
            constants,
        )


def axes_of(model: Model) -> Axes:
    """Dims and coords of a model; none for a model that does not tell them."""
    axes: Axes | None = getattr(model, "axes", None)
    return Axes() if axes is None else axes


def labels_of(values: Iterable[Any]) -> Labels:
    """Labels of an axis as an array of text, numbers, flags or times; others become text."""
    given = list(values)
    found = np.asarray(given) if given else np.zeros(0, dtype=np.int64)
    if found.ndim == 1 and found.dtype.kind in _KIND_OF:
        return found
    return np.array([str(value) for value in given])


def _encoded(labels: Labels) -> dict[str, Any]:
    kind = _KIND_OF.get(labels.dtype.kind, "text")
    typed = labels.astype(_KINDS[kind])
    return {"kind": kind, "values": (typed.view(np.int64) if kind == "time" else typed).tolist()}


def _decoded(kept: Mapping[str, Any]) -> Labels:
    kind = str(kept["kind"])
    if kind == "time":
        return np.array(kept["values"], dtype=np.int64).view(_KINDS[kind])
    return np.array(kept["values"], dtype=_KINDS[kind])

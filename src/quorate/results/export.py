"""Draws in files for other programs: NetCDF, Zarr, Parquet and CSV."""

import io
import secrets
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate._extras import load
from quorate._files import in_words, save
from quorate.errors import BadInputError, require
from quorate.results.arviz import CHAINS

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

FORMATS = (".nc", ".zarr", ".parquet", ".csv")
_NEEDS = {".nc": ("h5netcdf", "netcdf"), ".zarr": ("zarr", "zarr"), ".parquet": ("pyarrow", "data")}
_OF_ZARR = ("zarr.json", ".zgroup")  # files of a store


def require_target(path: Path) -> None:
    """Refuse a file that cannot be written, before there is anything to write."""
    require(
        path.suffix in FORMATS,
        f"{path} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.",
    )
    require(
        path.resolve().parent.is_dir(), f"The folder of {path} does not exist. Create it first."
    )
    is_store = path.suffix == ".zarr" and any((path / name).is_file() for name in _OF_ZARR)
    require(
        not path.is_dir() or is_store,
        f"{path} is a folder, and no Zarr store. Choose another name.",
    )
    if path.suffix in _NEEDS:
        load(*_NEEDS[path.suffix])


def export(tree: "xr.DataTree", path: Path) -> None:
    """Write a tree to a file, by the ending of its name; what was there before is replaced.

    NetCDF and Zarr hold all groups. Parquet and CSV hold a table of the posterior: a row for each
    draw, and a column for each scalar, such as `alpha[Anoka]`.
    """
    require_target(path)
    if path.suffix == ".zarr":
        _write_zarr(tree, path)
    elif path.suffix == ".nc":
        save(path, _netcdf(tree))
    else:
        frame = draws_table(tree["posterior"].to_dataset())
        save(path, frame.to_csv(index=False).encode() if path.suffix == ".csv" else _parquet(frame))


def draws_table(posterior: "xr.Dataset") -> "pd.DataFrame":
    """A row for each draw: its chain, its number, and the scalars of all variables."""
    import pandas as pd

    shape = tuple(posterior.sizes[name] for name in CHAINS)
    numbers = np.meshgrid(*(posterior[name] for name in CHAINS), indexing="ij")
    columns: dict[str, Any] = dict(zip(CHAINS, (n.ravel() for n in numbers), strict=True))
    for name, variable in posterior.data_vars.items():
        dims = [str(dim) for dim in variable.dims if dim not in CHAINS]
        values = variable.transpose(*CHAINS, *dims).to_numpy()
        labels = [_labels(posterior, dim) for dim in dims]
        for index in np.ndindex(values.shape[2:]):
            entry = ",".join(of[i] for of, i in zip(labels, index, strict=True))
            column = f"{name}[{entry}]" if index else str(name)
            columns[column] = values[(..., *index)].reshape(np.prod(shape))
    return pd.DataFrame(columns)


def _labels(posterior: "xr.Dataset", dim: str) -> list[str]:
    known = dim in posterior.coords
    return list(map(str, posterior[dim].to_numpy() if known else range(posterior.sizes[dim])))


def _netcdf(tree: "xr.DataTree") -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "draws.nc"
        tree.to_netcdf(path, engine="h5netcdf")
        return path.read_bytes()


def _parquet(frame: "pd.DataFrame") -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file, engine="pyarrow", index=False)
    return file.getvalue()


def _write_zarr(tree: "xr.DataTree", path: Path) -> None:
    """Write a store beside its place, and then rename it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with in_words(path):
            tree.to_zarr(beside, mode="w", zarr_format=2, consolidated=True)
            if path.exists():
                shutil.rmtree(path)
            beside.rename(path)
    except (ValueError, TypeError) as error:
        raise BadInputError(f"{path} cannot be written as Zarr ({error}). Use .nc.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)

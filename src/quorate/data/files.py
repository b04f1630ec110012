"""Rows that lie in Parquet or CSV files, read by record batches and never loaded whole."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._extras import load
from quorate.errors import BadInputError, require

Columns = dict[str, NDArray[Any]]
BATCH_BYTES = 1 << 25  # of a batch, about; whole numbers of rows, at least one
STRING_BYTES = 64  # of a string in memory, about
_READ_BYTES = 1 << 20  # of a column chunk at a time, so that row groups may be of any size
_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".csv.gz")


def find_files(path: str | Path) -> list[Path]:
    """The files that a path, a folder or a glob pattern stands for, in the order of their names."""
    if Path(path).is_dir():
        found = [file for file in sorted(Path(path).iterdir()) if _is(file, _PARQUET + _CSV)]
    elif Path(path).exists():
        found = [Path(path)]
    else:
        anchor = Path(path).anchor
        found = sorted(Path(anchor).glob(str(Path(path).relative_to(anchor))))
    require(bool(found), "data", str(path), "no such file, nor a folder or pattern that has any")
    return found


@dataclass(frozen=True)
class Files:
    """Files of one kind as one table, in the order given.

    Columns that are whole numbers in one file and floats in another are floats in all.

    Parameters
    ----------
    schemas
        pyarrow's, of each file.
    """

    paths: tuple[Path, ...]
    schemas: tuple[Any, ...]
    rows_per_file: tuple[int, ...]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "Files":
        """Look into the files: Parquet says how many rows there are, CSV is read through once."""
        require(bool(paths), "data", list(paths), "give at least one file")
        for path in paths:
            known = _is(path, _PARQUET + _CSV)
            require(known, "data", str(path), "write it as .parquet or .csv: no other is read")
        looks = [_look_into(path) for path in paths]
        schemas, rows = tuple(look[0] for look in looks), tuple(look[1] for look in looks)
        return cls(tuple(paths), schemas, rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns that any file has."""
        union = dict.fromkeys(name for schema in self.schemas for name in schema.names)
        first = tuple(self.schemas[0].names)
        return first if len(first) > len(set(first)) else tuple(union)

    @property
    def n_rows(self) -> int:
        """N."""
        return sum(self.rows_per_file)

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        import narwhals

        schema, table_of = self._schema(names), load("pyarrow", "data").Table.from_batches
        for path in self.paths:
            with _reading(path):
                for batch in _record_batches(path, schema):
                    table = narwhals.from_native(table_of([batch]).select(names).cast(schema))
                    yield {column.name: to_numpy(column) for column in table.iter_columns()}

    def _schema(self, names: Sequence[str]) -> Any:
        """The types of the named columns, such that all files fit."""
        arrow = load("pyarrow", "data")
        for path, schema in zip(self.paths, self.schemas, strict=True):
            lacking = [name for name in names if name not in schema.names]
            way_out = f"{path} lacks it and other files do not: leave it out by `columns`"
            require(not lacking, "column", lacking[:1], way_out)
        fields = []
        for name in names:
            each = [arrow.schema([arrow.field(name, s.field(name).type)]) for s in self.schemas]
            try:
                fields += arrow.unify_schemas(each, promote_options="permissive")
            except arrow.ArrowException as error:
                types = sorted({str(schema.field(name).type) for schema in each})
                way_out = "its files have types that do not agree: write them with one"
                raise BadInputError(f"column {name!r}", types, way_out) from error
        return arrow.schema(fields)


def _is(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(endings)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """pyarrow's complaints, with the file they are about."""
    try:
        yield
    except (load("pyarrow", "data").ArrowException, OSError) as error:
        message = str(error).partition("\n")[0]
        raise BadInputError("data", str(path), f"cannot be read: {message}") from error


def _look_into(path: Path) -> tuple[Any, int]:
    """Its schema, and how many rows it has."""
    with _reading(path):
        if _is(path, _PARQUET):
            with load("pyarrow.parquet", "data").ParquetFile(path) as file:
                return file.schema_arrow, file.metadata.num_rows
        with load("pyarrow.csv", "data").open_csv(path) as reader:
            return reader.schema, sum(batch.num_rows for batch in reader)


def _record_batches(path: Path, schema: Any) -> Iterator[Any]:
    if _is(path, _PARQUET):
        is_number = load("pyarrow.types", "data").is_primitive
        row_bytes = sum(8 if is_number(field.type) else STRING_BYTES for field in schema)
        step = max(1, BATCH_BYTES // row_bytes)
        parquet = load("pyarrow.parquet", "data")
        # By default pyarrow reads ahead, and a file as large as memory ends up in memory.
        with parquet.ParquetFile(path, buffer_size=_READ_BYTES, pre_buffer=False) as file:
            yield from file.iter_batches(step, columns=schema.names)
    else:
        csv = load("pyarrow.csv", "data")
        convert = csv.ConvertOptions(include_columns=schema.names, column_types=schema)
        read = csv.ReadOptions(block_size=BATCH_BYTES)
        with csv.open_csv(path, read_options=read, convert_options=convert) as reader:
            yield from reader


def to_numpy(column: Any) -> NDArray[Any]:
    """A narwhals series as an array. Missing values become NaN, or None among strings."""
    import narwhals  # takes long to import, and arrays do without it

    if column.dtype == narwhals.Decimal:
        column = column.cast(narwhals.Float64)
    if column.dtype == narwhals.Boolean and column.null_count():
        column = column.cast(narwhals.Int64)
    return np.asarray(column.to_numpy())

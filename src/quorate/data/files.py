"""Tables in Parquet or CSV files, read by record batches and never loaded whole."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate._extras import load
from quorate.data import csv_types
from quorate.errors import BadInputError, require

Columns = dict[str, NDArray[Any]]
BATCH_BYTES = 1 << 25  # approximate size of a batch, which has at least one row
STRING_BYTES = 64  # approximate size of a string in memory
_READ_BYTES = 1 << 20  # read of a column chunk at a time, so that row groups may have any size
_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".csv.gz")


def find_files(path: str | Path) -> list[Path]:
    """The files of a path, a folder or a glob pattern, sorted by name."""
    require(
        "://" not in str(path),
        f"{path} is a URL. Rows at URLs are read by the workers themselves: use by='in-place'.",
    )
    if Path(path).is_dir():
        found = [file for file in sorted(Path(path).iterdir()) if _is(file, _PARQUET + _CSV)]
    elif Path(path).exists():
        found = [Path(path)]
    else:
        anchor = Path(path).anchor
        found = sorted(Path(anchor).glob(str(Path(path).relative_to(anchor))))
    require(
        bool(found),
        f"No file found at {str(path)!r}. Give a Parquet or CSV file, a folder or a glob pattern.",
    )
    return found


def require_once(files: Sequence[str]) -> None:
    """Refuse a list in which a file stands twice."""
    twice = next((each for each, n in Counter(files).items() if n > 1), None)
    require(
        twice is None,
        f"{twice} is named more than once, and its rows would count as often. Name each file once, "
        "by patterns that do not overlap.",
    )


@dataclass(frozen=True)
class Files:
    """Files of one kind as one table, in the order given.

    Columns that are whole numbers in one file and floats in another are floats in all.

    Parameters
    ----------
    schemas
        pyarrow's schema of each file.
    """

    paths: tuple[Path, ...]
    schemas: tuple[Any, ...]
    rows_per_file: tuple[int, ...]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "Files":
        """Read schemas and numbers of rows. Parquet stores the number; CSV is read through once."""
        require(bool(paths), "The list of files is empty. Give at least one file.")
        for path in paths:
            known = _is(path, _PARQUET + _CSV)
            require(known, f"{path} is neither Parquet nor CSV. Write it as .parquet or .csv.")
        schemas, rows = zip(*(_schema_and_length(path) for path in paths), strict=True)
        return cls(tuple(paths), schemas, rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that any file has."""
        union = dict.fromkeys(name for schema in self.schemas for name in schema.names)
        first = tuple(self.schemas[0].names)
        return first if len(first) > len(set(first)) else tuple(union)

    @property
    def n_rows(self) -> int:
        """N."""
        return sum(self.rows_per_file)

    def with_text_ids(self, columns: tuple[str, ...]) -> "Files":
        """The table with text in place of whole numbers in some columns, if all files are CSV."""
        if not are_csv(self.paths):
            return self
        schemas = (csv_types.with_text_ids(schema, columns) for schema in self.schemas)
        return replace(self, schemas=tuple(schemas))

    def batches(self, names: Sequence[str]) -> Iterator[Columns]:
        schema = common_schema(self.paths, self.schemas, names)
        for path in self.paths:
            with reading(path):
                for batch in _record_batches(path, schema):
                    yield columns_of(batch, schema)


def common_schema(paths: Sequence[object], schemas: Sequence[Any], names: Sequence[str]) -> Any:
    """Types of the named columns that fit all files."""
    arrow = load("pyarrow", "data")
    for path, schema in zip(paths, schemas, strict=True):
        for name in names:
            require(
                name in schema.names,
                f"{path} has no column `{name}`, which other files have. Leave it out by "
                "`columns`.",
            )
    fields = []
    for name in names:
        each = [arrow.schema([arrow.field(name, s.field(name).type)]) for s in schemas]
        try:
            fields += arrow.unify_schemas(each, promote_options="permissive")
        except arrow.ArrowException as error:
            if are_csv(paths):  # their types were only inferred
                fields.append(arrow.field(name, arrow.string()))
                continue
            types = ", ".join(sorted({str(schema.field(name).type) for schema in each}))
            message = f"Column `{name}` has different types in its files: {types}. Use one."
            raise BadInputError(message) from error
    return arrow.schema(fields)


def are_csv(paths: Sequence[object]) -> bool:
    """Whether all files are CSV."""
    return all(_is(path, _CSV) for path in paths)


def columns_of(batch: Any, schema: Any) -> Columns:
    """The columns of a record batch of pyarrow, with these types."""
    import narwhals

    table = load("pyarrow", "data").Table.from_batches([batch]).select(schema.names).cast(schema)
    return {each.name: to_numpy(each) for each in narwhals.from_native(table).iter_columns()}


def _is(path: object, endings: tuple[str, ...]) -> bool:
    return str(path).lower().endswith(endings)


@contextmanager
def reading(path: object) -> Iterator[None]:
    """Turn errors of pyarrow into one that names the file."""
    try:
        yield
    except (load("pyarrow", "data").ArrowException, OSError) as error:
        said = str(error).partition("\n")[0].rstrip(".")
        raise BadInputError(f"{path} cannot be read: {said}. Write the file again.") from error


def _schema_and_length(path: Path) -> tuple[Any, int]:
    """The schema and the number of rows of a file."""
    with reading(path):
        if _is(path, _PARQUET):
            with load("pyarrow.parquet", "data").ParquetFile(path) as file:
                return file.schema_arrow, file.metadata.num_rows
        return csv_types.schema_and_length(path)


def _record_batches(path: Path, schema: Any) -> Iterator[Any]:
    if _is(path, _PARQUET):
        with open_parquet(path) as file:
            yield from file.iter_batches(rows_at_once(schema), columns=schema.names)
    else:
        csv = load("pyarrow.csv", "data")
        convert = csv.ConvertOptions(
            include_columns=schema.names,
            column_types=schema,
            strings_can_be_null=True,  # an empty field is missing, in columns of text too
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(block_size=BATCH_BYTES)
        with csv.open_csv(path, read_options=read, convert_options=convert) as reader:
            yield from reader


def open_parquet(source: Any) -> Any:
    """A Parquet file, to be read in little memory: a path, or a file of pyarrow."""
    # By default pyarrow reads ahead until a file as large as memory is in memory.
    parquet = load("pyarrow.parquet", "data")
    return parquet.ParquetFile(source, buffer_size=_READ_BYTES, pre_buffer=False)


def rows_at_once(schema: Any) -> int:
    """Number of rows of a batch of some megabytes."""
    is_number = load("pyarrow.types", "data").is_primitive
    row_bytes = sum(8 if is_number(field.type) else STRING_BYTES for field in schema)
    return max(1, BATCH_BYTES // row_bytes)


def to_numpy(column: Any) -> NDArray[Any]:
    """A narwhals series as an array. Missing values become NaN, or None among strings."""
    import narwhals  # takes long to import, and arrays do without it

    if column.dtype == narwhals.Decimal:
        column = column.cast(narwhals.Float64)
    if column.dtype == narwhals.Boolean and column.null_count():
        column = column.cast(narwhals.Int64)
    return np.asarray(column.to_numpy())

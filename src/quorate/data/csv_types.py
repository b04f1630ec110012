"""Types of the columns of a CSV file, which does not state them: they fit all rows.

pyarrow infers types from the first megabyte. Where a later row does not fit, its column gets a
wider type, and the file is read again.
"""

import re
from pathlib import Path
from typing import Any

from quorate._extras import load
from quorate.data.numerals import number_in

_MISFIT = re.compile(
    r"CSV column #(\d+): CSV conversion error to (\w+).*invalid value '(.*)'", re.S
)


def schema_and_length(path: Path) -> tuple[Any, int]:
    """The schema and the number of rows of a file, which is read through."""
    arrow, csv = load("pyarrow", "data"), load("pyarrow.csv", "data")
    types: dict[str, Any] = {}
    while True:
        options = csv.ConvertOptions(column_types=types)
        with csv.open_csv(path, convert_options=options) as reader:
            schema = reader.schema
            try:
                return schema, sum(batch.num_rows for batch in reader)
            except arrow.ArrowInvalid as error:
                misfit = _MISFIT.search(str(error))
                if misfit is None:
                    raise
                column, kind, value = misfit.groups()
        name = schema.names[int(column)]
        is_number = kind == "int64" and number_in(value) is not None
        types[name] = arrow.float64() if is_number else arrow.string()


def with_text_ids(schema: Any, columns: tuple[str, ...]) -> Any:
    """The schema with text in place of whole numbers in some columns: `007` is not `7` there."""
    arrow = load("pyarrow", "data")
    for name in columns:
        place = schema.get_field_index(name)
        if place >= 0 and arrow.types.is_integer(schema.field(place).type):
            schema = schema.set(place, arrow.field(name, arrow.string()))
    return schema

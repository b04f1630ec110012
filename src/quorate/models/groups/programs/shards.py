"""The groups of the rows of a shard."""

import numpy as np

from quorate._types import IntArray
from quorate.errors import require
from quorate.models.groups.nesting import Nesting
from quorate.models.protocol import Shard


def codes_of(shard: Shard, column: str, added: str = "group") -> IntArray:
    """The code of the group of each row, (n,): `group`, which the cut adds, or the column.

    For groups within groups, the cut adds `inner`.
    """
    held = shard.get(added, shard.get(column))
    listed = ", ".join(sorted(shard)) or "nothing"
    require(
        held is not None,
        f"A shard of this model holds `{added}`, the codes of its groups. This one holds {listed}: "
        f'cut the rows with by="group:{column}".',
    )
    codes = np.asarray(held)
    whole = codes.ndim == 1 and np.issubdtype(codes.dtype, np.integer)
    message = f"Codes of groups are whole numbers, one a row, not {codes.dtype} {codes.shape}."
    require(whole, message)
    return codes.astype(np.int64)


def compact(codes: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Codes of groups in rising order, and for rows sorted by group: their groups and places.

    Returns
    -------
    tuple
        The m codes; the index of each row's group, 0 to m - 1, in rising order; and the order of
        the rows that sorts them.
    """
    groups, index = np.unique(codes, return_inverse=True)
    order = np.argsort(index, kind="stable")
    return groups, np.asarray(index[order], dtype=np.int64), np.asarray(order, dtype=np.int64)


def nested_codes(shard: Shard, columns: tuple[str, str]) -> tuple[Nesting, IntArray]:
    """The groups of two levels, and the place of each row's inner group among the inner ones."""
    outer, inner = codes_of(shard, columns[0]), codes_of(shard, columns[1], "inner")
    return Nesting.of_rows(outer, inner)

"""Operations on Arrow tables for gold."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TEXT: Final = pa.string()
LONG: Final = pa.int64()
INT: Final = pa.int32()
FLAG: Final = pa.bool_()
TIME: Final = pa.timestamp("us", tz="UTC")


def group_rows(
    table: pa.Table,
    keys: Sequence[str],
    *,
    total: Sequence[str] = (),
    least: Sequence[str] = (),
    most: Sequence[str] = (),
    count: str | None = None,
) -> pa.Table:
    """One row per key: sums, smallest and greatest values, and the number of rows."""
    aggregates: list[Any] = [(name, "sum") for name in total]
    aggregates += [(name, "min") for name in least]
    aggregates += [(name, "max") for name in most]
    names = [*keys, *(f"{name}_{how}" for name, how in aggregates)]
    named = [*keys, *total, *least, *most]
    if count is not None:
        aggregates.append(([], "count_all"))
        names.append("count_all")
        named.append(count)
    return table.group_by(list(keys)).aggregate(aggregates).select(names).rename_columns(named)


def number_keys(table: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Number the distinct keys from 0 and return each row's number; nulls are equal."""
    numbers = np.zeros(table.num_rows, np.int64)
    for name in keys:
        texts = table.column(name).combine_chunks().dictionary_encode("encode")
        codes = texts.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Renumber the keys before the product of the columns' sizes overflows.
        numbers = np.unique(numbers * (len(texts.dictionary) + 1) + codes, return_inverse=True)[1]
    return numbers.astype(np.int64)


def table_of_rows(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return a table of rows in the schema's order; times are in microseconds."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Select a schema's columns and cast them to its types, in its order."""
    return table.select(schema.names).cast(schema)


def repeat_value(value: Any, type_: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), count)


def rows_with(table: pa.Table, name: str, *values: Any) -> pa.Table:
    """Return the rows whose column has one of these values."""
    column = table.column(name)
    return table.filter(pc.is_in(column, pa.array(values, column.type)))

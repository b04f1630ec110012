"""Data: tables in memory or in files, the partition of their rows, and shards on disk.

Nothing here knows a model, a scheme or an engine. pandas, polars and pyarrow are imported only for
data of their kind.
"""

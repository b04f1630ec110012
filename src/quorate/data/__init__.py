"""Rows: tables in, shards on disk out. Knows no model, no scheme and no engine."""

"""Engines carry messages between a coordinator and its workers. They know no scheme."""

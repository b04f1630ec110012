"""Formulas: their syntax, the columns they make of a table, and what has to be learned of the rows.

A formula runs no Python. `design` is what users call; it says which columns a regression has.
"""

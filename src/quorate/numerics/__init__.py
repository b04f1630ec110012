"""Numerical tools that know nothing of models, shards, workers or files.

Here live effective sample sizes and R-hat, linear algebra, running moments, importance sampling,
names of scalars, and random numbers that are found by their key. Arrays come in, arrays go out.
"""

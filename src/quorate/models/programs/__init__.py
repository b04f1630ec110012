"""Models that users program: plain functions, NumPyro, PyMC and bambi.

JAX, NumPyro, PyMC and bambi are imported when needed. Programs whose groups have variables of
their own are in `quorate.models.groups.programs`.
"""

"""Functions, NumPyro and PyMC programs whose groups have parameters of their own.

JAX, NumPyro and PyMC are imported when needed. Nothing here may import `models.groups.regressions`,
or assume a form of the likelihood: programs are only evaluated, at points.
"""

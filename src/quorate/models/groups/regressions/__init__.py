"""Regressions whose groups have coefficients of their own: one level, or two that nest.

Integrals use the linear predictor and the family. JAX is imported when needed. Nothing here may
parse a formula, run user code, or import `models.groups.programs`.
"""

"""Regressions whose groups have coefficients of their own: one level, or two that nest."""

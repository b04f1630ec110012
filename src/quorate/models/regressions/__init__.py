"""Regressions without groups: families of responses, in numpy and compiled by JAX.

`ready_made` has what users call. Regressions with groups are in
`quorate.models.groups.regressions`.
"""

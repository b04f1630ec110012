"""The paper's experiments (§VI): frozen specs, their evaluation, and the figures.

Experiments run in virtual time. No merging rule or scheme may live here: figures ask schemes for
their own global draws, so that they show the code of real runs.
"""

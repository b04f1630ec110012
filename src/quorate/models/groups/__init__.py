"""Models whose groups have parameters of their own, which are integrated out of the likelihood.

`regressions` and `programs` do not import each other; what they share lives here: levels, nesting,
quadrature and accuracy. Nothing here may know samplers, shards on disk or schemes.
"""

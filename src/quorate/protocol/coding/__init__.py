"""Gradient codes: encoding, decoding, and the comparison of replicas.

A code knows coefficients and sets of workers. Nothing here may know what the vectors mean, when
answers arrive, or what a scheme does with the decoded sums.
"""

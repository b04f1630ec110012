"""Functions, NumPyro and PyMC programs whose groups have parameters of their own."""

"""Models whose groups have parameters of their own, which are integrated out of the likelihood."""

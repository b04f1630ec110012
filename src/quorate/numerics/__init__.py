"""Small numerics that everything stands on: ESS, linear algebra, moments, keyed randomness."""

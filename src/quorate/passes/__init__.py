"""Exact draws from passes over the posterior: what to ask next, and what the answers make.

It knows no worker and no clock. `inquiry` asks the questions, `centring` fits a Gaussian to the
posterior, `ensemble` draws.
"""

"""The paper's experiments (§VI): frozen specs, their evaluation, and the figures."""

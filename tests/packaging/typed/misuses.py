"""Mistakes that mypy must find: one on each line with a comment `# wrong`."""

import numpy as np

import quorate
from quorate.models import logistic

model, rows = logistic(2), {"X": np.zeros((4, 2)), "y": np.zeros(4)}

quorate.sample(model, rows, worker=4)  # wrong
quorate.sample(model, rows, workers="four")  # wrong
quorate.sample(model, rows, method="precise")  # wrong
quorate.sample(model, rows, engine=8)  # wrong
quorate.sample(model, rows).sumary()  # wrong
quorate.Until(tiem=60)  # wrong
quorate.Adaptive(redundancy="2")  # wrong
quorate.resume("run", workers=4)  # wrong
name: str = quorate.plan("pareto:0.1,1.2")  # wrong
quorate.check(3)  # wrong

"""The verdict: whether a merge can be trusted.

`proposal` says where to evaluate the posterior, `importance` weighs the points, `shards` checks the
chains of each shard, and `verdict` judges. All of it is pure: log densities come in, a verdict goes
out. Evaluating them on workers is the business of `quorate.run.check`; nothing here may do that.
"""

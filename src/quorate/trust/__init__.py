"""Whether a merge is to be trusted: what was seen of the shards, and of the posterior itself.

Pure: log densities of the shards at points of a `proposal` come in, a `verdict` goes out. Who
evaluates them, and on which machine, is for `quorate.run.check` to say.
"""

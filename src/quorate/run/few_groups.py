"""Warns of merges of hierarchical models whose shards have few groups."""

import numpy as np

from quorate._warnings import warn
from quorate.data.codes import LEVELS
from quorate.data.placed import PlacedShards, Shards
from quorate.errors import FewGroupsWarning
from quorate.models.groups.levels import levels_of
from quorate.models.protocol import Model

FEWEST = 200  # groups of a shard from which a merge of the sds of groups is fair


def warn_of_few_groups(model: Model, shards: Shards) -> None:
    """Warn if a shard has so few groups that its subposterior of their sd is skewed."""
    if not levels_of(model) or isinstance(shards, PlacedShards):
        return
    counts = [len(np.unique(shards.shard(s)[LEVELS[0]])) for s in range(shards.n_shards)]
    if min(counts) < FEWEST:
        warn(
            f"A shard has only {min(counts)} groups. A merge takes the draws of each shard for "
            f"Gaussian, but below about {FEWEST} groups those of the sds of groups are skewed, so "
            "their merge is off, and a check by importance weights does not show it. Use "
            "method='exact', which has no such limit, or fewer workers.",
            FewGroupsWarning,
        )

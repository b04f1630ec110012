"""Warns of merges of hierarchical models whose shards have few groups."""

from quorate._warnings import warn
from quorate.data.placed import Shards
from quorate.data.placed_groups import groups_held
from quorate.errors import FewGroupsWarning
from quorate.models.groups.levels import levels_of
from quorate.models.protocol import Model

FEWEST = 200  # groups of a shard from which a merge of the sds of groups is fair


def warn_of_few_groups(model: Model, shards: Shards) -> None:
    """Warn if a shard has so few groups that its subposterior of their sd is skewed."""
    if not levels_of(model):
        return
    counts = [len(groups_held(shards, shard)) for shard in range(shards.n_shards)]
    if min(counts) < FEWEST:
        warn(
            f"A shard has only {min(counts)} groups. A merge takes the draws of each shard for "
            f"Gaussian, but below about {FEWEST} groups those of the sds of groups are skewed, so "
            "their merge is off, and a check by importance weights does not show it. Use "
            "method='exact', which has no such limit, or fewer workers.",
            FewGroupsWarning,
        )

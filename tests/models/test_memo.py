"""What is computed from a shard once."""

from collections import Counter

import numpy as np
import pytest

from quorate.models.memo import PerShard


@pytest.fixture
def usual_room(monkeypatch):
    monkeypatch.setattr(PerShard, "n_kept", PerShard.n_kept)


def shards(n):
    found = [{"row": np.array([i])} for i in range(n)]
    for shard in found:
        shard["row"].flags.writeable = False
    return found


def test_a_process_that_holds_many_shards_computes_each_once(usual_room):
    """As when many workers share a process. Without the room, every pass would compute anew."""
    n_computed = Counter()
    count = PerShard(lambda shard: n_computed.update([int(shard["row"][0])]))
    many = shards(PerShard.n_kept + 1)
    for shard in 2 * many:
        count(shard)
    assert set(n_computed.values()) == {2}
    PerShard.make_room(len(many))
    n_computed.clear()
    for shard in 3 * many:
        count(shard)
    assert max(n_computed.values()) == 1

"""Tests that share an expensive fixture run in one process of xdist, which computes it once."""

import pytest


@pytest.mark.xdist_group("some_group")
def test_xdist_is_told_the_group_of_a_test(request):
    """It reads groups from the ends of ids, and says nothing if there are none."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("needs -n and --dist loadgroup")
    assert request.node.nodeid.endswith("@some_group")

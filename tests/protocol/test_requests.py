"""When something that was asked for is late."""

from statistics import median

from quorate.protocol.requests import Requests


def test_a_part_is_late_after_twice_the_median_of_the_last_answers(rng):
    requests = Requests()
    times = rng.exponential(size=200).round(2)  # some are equal
    for i, seconds in enumerate(times):
        assert requests.choose(0, [(0, i, 0, 0)], 0.0) == (0, i, 0, 0)
        requests.answered(0, [(0, i, 0, 0)], seconds)
        requests.forget(0, i)
        requests.choose(1, [(1, i, 0, 0)], 10.0)
        assert requests.next_late() == 10.0 + 2 * median(times[max(i - 63, 0) : i + 1])
        requests.forget(1, i)

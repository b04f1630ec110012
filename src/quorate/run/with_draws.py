"""Errors of disks that end a run carry the draws so far."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quorate.errors import JournalError, QuorateError, SaveError
from quorate.results.result import Result


@contextmanager
def with_draws(result: Callable[[str], Result], why_stopped: str) -> Iterator[None]:
    """Add the result so far to a `JournalError` or `SaveError`, if there is one."""
    try:
        yield
    except JournalError as error:
        told = (error.path, error.what, error.way_out)
        raise JournalError(*told, _so_far(result, why_stopped)) from error
    except SaveError as error:
        raise SaveError(error.path, error.why, _so_far(result, why_stopped)) from error


def _so_far(result: Callable[[str], Result], why_stopped: str) -> Result | None:
    try:
        found = result(why_stopped)
    except QuorateError:  # there are too few draws for a result
        return None
    return found if found.n_draws else None

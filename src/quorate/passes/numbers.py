"""The random numbers of chains in step, found by chain and step."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtri

from quorate._types import Array, IntArray
from quorate.numerics.streams import Purpose, Streams

DEGREES = 7.0  # of freedom of the base
_ANGLES = 13  # uniforms for angles in the row of a step; more are generated when needed
_PAGE = 16  # steps whose numbers are made together
_MANY = 512  # chains for which a thread makes the next page in advance
_MORE = 32  # uniforms on a page of further angles
_MORE_PAGES = 1024  # of such pages for each step


class Numbers(NamedTuple):
    """The random numbers with which n steps begin."""

    normals: Array  # (n, d)
    gammas: Array  # (n,), of shape (degrees + d) / 2
    heights: Array  # (n,), logarithms of uniforms
    angles: Array  # (n,), uniforms


class StepNumbers:
    """Finds the random numbers of steps, made for all chains and some steps at a time.

    Parameters
    ----------
    lane
        Number of the ensemble in the run; ensembles share no random number.
    """

    def __init__(self, streams: Streams, lane: int, n_chains: int, dim: int) -> None:
        self._streams = streams
        self._lane = lane
        self._chains = [(chain, lane) for chain in range(n_chains)]
        self._dim = dim
        self._first, self._end = 0, 0  # pages that are known
        # Page p is at place p modulo the number of places
        self._known = np.empty((4, n_chains, _PAGE, dim + 2 + _ANGLES))
        self._angles = np.empty((n_chains, _ANGLES))  # of the steps that were asked for last
        self._next: Future[Array] | None = None

    def of(self, chains: IntArray, steps: IntArray) -> Numbers:
        """The numbers with which step `steps[i]` of chain `chains[i]` begins.

        `angles` then knows those of this step.
        """
        while self._end <= int(steps.max()) // _PAGE:
            self._add_page()
        pages, rows = np.divmod(steps, _PAGE)
        dim = self._dim
        found = self._known[pages % len(self._known), chains, rows]
        self._angles[chains] = found[:, dim + 2 :]
        return Numbers(found[:, :dim], found[:, dim], found[:, dim + 1], found[:, dim + 2])

    def angles(self, chains: IntArray, steps: IntArray, tries: IntArray) -> Array:
        """Uniforms for angle number `tries[i]` of the steps that chains are at, (n,)."""
        found = self._angles[chains, np.minimum(tries, _ANGLES - 1)]
        for i in (tries >= _ANGLES).nonzero()[0].tolist():
            found[i] = self._further_angle(int(chains[i]), int(steps[i]), int(tries[i]))
        return np.asarray(found)

    def forget_before(self, step: int) -> None:
        """Drop the numbers of steps that all chains have made."""
        self._first = max(self._first, min(step // _PAGE, self._end))

    def go_to(self, step: int) -> None:
        """Begin anew at a step that all chains have reached."""
        self._first = self._end = step // _PAGE
        self._next = None

    def _further_angle(self, chain: int, step: int, number: int) -> float:
        page, place = divmod(number - _ANGLES, _MORE)
        row = step * _MORE_PAGES + page
        lane = [(chain, self._lane)]
        found = self._streams.uniforms(Purpose.MORE_ENSEMBLE, lane, row, 1, _MORE)
        return float(found[0, 0, place])

    def _add_page(self) -> None:
        if self._end - self._first == len(self._known):
            self._make_room()
        page = self._page(self._end) if self._next is None else self._next.result()
        self._known[self._end % len(self._known)] = page
        self._end += 1
        if len(self._chains) >= _MANY:
            self._next = _thread(os.getpid()).submit(self._page, self._end)

    def _make_room(self) -> None:
        """Twice as many places."""
        n_places = len(self._known)
        more = np.empty((2 * n_places, *self._known.shape[1:]))
        for page in range(self._first, self._end):
            more[page % len(more)] = self._known[page % n_places]
        self._known = more

    def _page(self, page: int) -> Array:
        dim = self._dim
        numbers = self._streams.uniforms(
            Purpose.ENSEMBLE, self._chains, page * _PAGE, _PAGE, dim + 2 + _ANGLES
        )
        numbers[..., :dim] = ndtri(numbers[..., :dim])
        numbers[..., dim] = gammaincinv((DEGREES + dim) / 2, numbers[..., dim])
        numbers[..., dim + 1] = np.log(numbers[..., dim + 1])
        return numbers


@cache
def _thread(pid: int) -> ThreadPoolExecutor:
    """Makes pages, in the process `pid`: a fork has no threads of its parent.

    One thread is enough: chains need longer to use a page than it to make one.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="quorate-numbers")

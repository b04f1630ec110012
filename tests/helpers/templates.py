"""Templates that runs of one test process hand on to each other.

A run starts a process that imports what workers need, and forks workers from it. It runs no user
code, so the next run in the same surroundings can fork its workers from the same process, and the
third of a second that imports take is saved.
"""

import os
from pathlib import Path

from quorate.engines.processes.subreaper import children
from quorate.engines.processes.template import Template
from quorate.engines.workers.service import environment


def surroundings():
    """What a process inherits from us, and workers from it."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    return {**variables, **environment()}, Path.cwd()


class KeptTemplates:
    """Keeps the template of the last run, if it is whole and nothing is left below it."""

    def __init__(self):
        self._free = None

    def template_for(self, log):
        """A template for a run: the one that is kept, if we are where it was started."""
        kept, self._free = self._free, None
        if kept is not None and kept.surroundings == surroundings() and kept.is_whole:
            return kept
        if kept is not None:
            kept.end()
        return _Kept(log, self)

    def keep(self, template):
        """Take a template back from a run."""
        self.end()
        self._free = template

    def end(self):
        """End the one that is kept."""
        if self._free is not None:
            self._free.end()
        self._free = None


class _Kept(Template):
    def __init__(self, log, keeper):
        self.surroundings, self._keeper, self._is_killed = surroundings(), keeper, False
        super().__init__(log)

    @property
    def is_whole(self):
        """Whether it can fork workers and has none."""
        if self._is_killed or not self._has_forked or self._guard.poll() is not None:
            return False
        try:
            return self.pid != self._guard.pid and children(self.pid) == []
        except OSError:  # it has just ended
            return False

    def kill(self):
        self._is_killed = True
        super().kill()

    def close(self):
        """At the end of a run."""
        if self.is_whole:
            self._keeper.keep(self)
        else:
            self.end()

    def end(self):
        super().close()

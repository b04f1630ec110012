"""A command of quorate that is submitted to a cluster, to run there with Ray."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Submitted:
    """`quorate sample` or `quorate resume` with its words.

    Parameters
    ----------
    words
        The command and its arguments, without an engine.
    run_dir
        The folder of the run, if the words name it.
    again
        Those options among the words that hold for a sitting, and so for a `resume` too.
    """

    words: tuple[str, ...]
    run_dir: str | None = None
    again: tuple[str, ...] = ()

    def in_shell(self, run: str, address: str) -> str:
        """Lines of shell that run it, or resume the run if there is one already.

        Parameters
        ----------
        run
            Folder of the run, in shell's words.
        address
            Address of Ray, in shell's words.
        """
        on_ray = f"--engine ray --ray-address {address}"
        given = shlex.join(self.words)
        if self.words[0] == "resume":
            return f"exec quorate {given} {on_ray}"
        resumed = " ".join([run, *map(shlex.quote, self.again)])
        folder = "" if self.run_dir is not None else f" --run-dir {run}"
        return (
            f"if [ -e {run}/journal.sqlite ]; then\n"
            f"    exec quorate resume {resumed} {on_ray}\n"
            "fi\n"
            f"exec quorate {given}{folder} {on_ray}"
        )

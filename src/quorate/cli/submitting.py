"""`quorate slurm` and `quorate kube`: write what to submit to a cluster."""

import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from quorate._files import save
from quorate.cli.console import err
from quorate.cli.flags import options_given
from quorate.cli.options import options_of, taken
from quorate.cli.sampling import resume_command, sample_command
from quorate.engines.submitting.kube import Kube, kube_manifest
from quorate.engines.submitting.slurm import Slurm, slurm_script
from quorate.engines.submitting.submitted import Submitted
from quorate.errors import require

_COMMANDS = {"sample": sample_command, "resume": resume_command}
_OF_THE_ENGINE = ("engine", "address", "processes", "devices")
# What a run does not keep in its journal, or what goes with the engine
_OF_A_SITTING = (
    "time",
    "ess",
    "restarts",
    "gpus_per_worker",
    "actors",
    "actor_per_node",
    "processes_per_node",
    "output",
    "check",
    "every",
    "watch",
    "as_json",
)
_COMMAND = click.argument("command", nargs=-1, required=True, metavar="-- sample|resume ...")
_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to a file; to standard output by default.",
)
_METAVARS = {"time": "HH:MM:SS", "memory": "SIZE"}


@click.command("slurm")
@options_of(Slurm, metavars=_METAVARS)
@click.option(
    "--setup",
    multiple=True,
    metavar="SHELL",
    help="Run a line of shell first, such as `module load python`; may be repeated. "
    "By default the Python environment of this command is used.",
)
@_OUTPUT
@_COMMAND
def slurm_command(
    command: tuple[str, ...], setup: tuple[str, ...], output: Path | None, **options: Any
) -> None:
    """Write a batch script for Slurm that runs a command of quorate on several nodes.

    Submit it with `sbatch`. Submitted again with a run folder that exists, it resumes the run.
    """
    job = Slurm(**taken(options, [field.name for field in fields(Slurm)]))
    lines = setup or (f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',)
    _write(slurm_script(job, _submitted(command), lines), output)


@click.command("kube")
@click.option(
    "--image", required=True, metavar="IMAGE", help="Use this image, with Ray, quorate and model."
)
@options_of(Kube, [f.name for f in fields(Kube) if f.name != "image"], metavars=_METAVARS)
@_OUTPUT
@_COMMAND
def kube_command(command: tuple[str, ...], image: str, output: Path | None, **options: Any) -> None:
    """Write a manifest for KubeRay that runs a command of quorate on several pods.

    Apply it with `kubectl`. Rows, model and run are on a volume that the pod of the head sees as
    /runs.
    """
    job = Kube(image, **taken(options, [field.name for field in fields(Kube)]))
    _write(kube_manifest(job, _submitted(command)), output)


def _submitted(words: tuple[str, ...]) -> Submitted:
    """The command, once its own options are found to be right."""
    name, *rest = words
    require(
        name in _COMMANDS,
        f"{name!r} cannot be submitted. Write -- sample or -- resume, and its arguments.",
    )
    with _COMMANDS[name].make_context(name, list(rest)) as context:
        of_engine = options_given(context, _OF_THE_ENGINE)
        require(not of_engine, f"The cluster is the engine. Leave out {' '.join(of_engine)}.")
        run_dir = context.params["run_dir"]
        again = tuple(options_given(context, _OF_A_SITTING))
    return Submitted(words, None if run_dir is None else str(run_dir), again)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    save(output, text.encode())
    err.print(f"Written: {output}", soft_wrap=True)

"""The command line: parses, calls, prints."""

from typing import Any

import click

from quorate.cli.checking import check_command
from quorate.cli.combining import combine_command
from quorate.cli.console import warnings_in_words
from quorate.cli.exporting import export_command
from quorate.cli.local import local_command
from quorate.cli.paper import reproduce_command, simulate_command
from quorate.cli.planning import plan_command
from quorate.cli.reporting import report_command
from quorate.cli.salvaging import salvage_command
from quorate.cli.sampling import resume_command, sample_command, summary_command
from quorate.cli.submitting import kube_command, slurm_command
from quorate.cli.updating import update_command
from quorate.cli.watching import watch_command
from quorate.errors import QuorateError, WorkerFailedError

_FAILED = 4  # exit code of a run that failed


class Commands(click.Group):
    """Commands whose errors are one line on standard error, and exit code 2."""

    def invoke(self, context: click.Context) -> Any:
        try:
            with warnings_in_words():
                return super().invoke(context)
        except WorkerFailedError as error:
            if error.is_bad_input:
                raise click.UsageError(str(error)) from None
            click.echo(error.traceback, err=True)
            click.echo(f"Error: {error}", err=True)
            context.exit(_FAILED)
        except QuorateError as error:
            raise click.UsageError(str(error)) from None
        except MemoryError:
            raise click.UsageError("This does not fit into memory. Use smaller numbers.") from None


@click.group(cls=Commands)
@click.version_option(package_name="quorate", prog_name="quorate")
def main() -> None:
    """Bayesian posteriors over many machines, without waiting for the slowest."""


for command in (
    sample_command,
    resume_command,
    update_command,
    summary_command,
    report_command,
    watch_command,
    check_command,
    local_command,
    export_command,
    salvage_command,
    combine_command,
    reproduce_command,
    simulate_command,
    plan_command,
    slurm_command,
    kube_command,
):
    main.add_command(command)

"""Runs a page of the docs as one script: its blocks in order, in one folder and one namespace.

A page may contain two comments that readers do not see. `<!-- not run: WHY -->` right above a block
says why it cannot run here. `<!-- setup: PYTHON -->` is run where it stands, and makes what the
page assumes to be there. A Python block that begins with `# NAME.py` is also written to that file.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from doctest import ELLIPSIS, DocTestParser, DocTestRunner
from pathlib import Path
from typing import Any

import yaml
from click import MissingParameter
from click.exceptions import Exit
from markdown_it import MarkdownIt

from quorate.cli import main

SHELLS = ("bash", "sh", "console")
PARSERS = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
LEFT = ("dockerfile", "text", "math", "{math}", "{commands}", "{eval-rst}", "{toctree}")

_NOT_RUN = re.compile(r"<!-- not run: (\S.*) -->\n")
_SETUP = re.compile(r"<!-- setup:\n(.*)-->\n", re.DOTALL)
_NAMED_FILE = re.compile(r"# (\w+\.py)\n")
_PROMPTED = re.compile(r"^\$ ((?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)", re.MULTILINE)
_PATIENCE = 600  # seconds for the commands of a block; mark a command that never returns


@dataclass(frozen=True)
class Block:
    """A block of code. `line` is the number of lines of the page before it."""

    page: Path
    line: int
    language: str
    source: str
    why_not_run: str | None = None

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Commands of a shell block, each with the output that the page shows; … is anything."""
        if self.language == "console":
            assert self.source.startswith("$ "), f"{self.source}\nwrite $ before what is typed"
            return _PROMPTED.findall(self.source)
        return [(self.source, "")]


def run_page(page: Path) -> None:
    """Run every block that can run, in the working directory; check the syntax of the others."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(page)}
    for block in blocks_of(page):
        if block.language in PARSERS:
            PARSERS[block.language](block.source)
        elif block.language in ("python", *SHELLS):
            read(block) if block.why_not_run else run(block, namespace)
        else:
            where = f"{page.name}, line {block.line}"
            assert block.language in LEFT, f"{where}: {block.language!r} is no language known here"
    for line in commands_in_prose(page):
        parse(line)


def blocks_of(page: Path) -> list[Block]:
    """Fenced blocks and setups of a page, in order."""
    found, why_not_run = [], None
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence":
            language = token.info.partition(" ")[0]
            found.append(Block(page, token.map[0] + 1, language, token.content, why_not_run))
        is_comment = token.type == "html_block"
        if is_comment and (setup := _SETUP.fullmatch(token.content)):
            found.append(Block(page, token.map[0] + 1, "python", setup[1]))
        reason = _NOT_RUN.fullmatch(token.content) if is_comment else None
        why_not_run = reason and reason[1]
    return found


def commands_in_prose(page: Path) -> Iterator[str]:
    """Commands that the text quotes as `quorate COMMAND ...`."""
    for token in MarkdownIt().enable("table").parse(page.read_text()):
        for child in token.children or []:
            if child.type == "code_inline" and re.match("quorate [a-z]", child.content):
                yield child.content


def run(block: Block, namespace: dict[str, Any]) -> None:
    """Run a block, and compare what it prints with what the page shows."""
    if block.language in SHELLS:
        for command, shown in block.commands:
            printed = run_in_shell(command)
            pattern = ".*".join(map(re.escape, shown.strip().split("…"))) or ".*"
            is_shown = re.fullmatch(pattern, printed.strip(), re.DOTALL)
            assert is_shown, f"shown:\n{shown}\nprinted:\n{printed}"
    elif block.source.startswith(">>>"):
        run_session(block, namespace)
    else:
        if named := _NAMED_FILE.match(block.source):
            Path(named[1]).write_text(block.source)
        exec(compiled(block), namespace)  # noqa: S102


def run_in_shell(commands: str) -> str:
    """The output of commands. All of them must succeed; processes they leave behind are ended."""
    with subprocess.Popen(
        ["/bin/bash", "-euo", "pipefail", "-c", commands],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=_PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, f"exit code {shell.returncode} of\n{commands}\n{printed}"
    return printed


def run_session(block: Block, namespace: dict[str, Any]) -> None:
    """Run a session of `>>>` lines, and compare its values with those shown; `...` is anything."""
    name, path = block.page.name, str(block.page)
    session = DocTestParser().get_doctest(block.source, namespace, name, path, block.line)
    session.globs = namespace  # not the copy that it makes
    told: list[str] = []
    outcome = DocTestRunner(optionflags=ELLIPSIS).run(session, out=told.append, clear_globs=False)
    assert outcome.failed == 0, "".join(told)


def compiled(block: Block) -> Any:
    """The code of a block, with the page's line numbers for tracebacks."""
    return compile("\n" * block.line + block.source, block.page, "exec", dont_inherit=True)


def read(block: Block) -> None:
    """Check the syntax of a block that is not run, and the options of its quorate commands."""
    if block.language == "python":
        compiled(block)
        return
    for command, _ in block.commands:
        run_in_shell(f"bash -n <<< {shlex.quote(command)}")
        for line in command.replace("\\\n", "").splitlines():
            if "quorate " in line:
                parse(line)


def parse(line: str) -> None:
    """Let the command line parse what follows `quorate`; arguments may be missing, or be --help."""
    words = shlex.split(line, comments=True)
    if "quorate" in words:
        name, *arguments = words[words.index("quorate") + 1 :]
        with suppress(MissingParameter, Exit):
            main.commands[name].make_context(name, arguments)

"""The server of the live page; it listens on this machine only."""

import asyncio
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvicorn

from quorate.errors import BadInputError
from quorate.live.app import HOST, make_app
from quorate.live.view import LiveView
from quorate.live.writer import Interrupter

_TOKEN_BYTES = 24
_SECONDS_TO_SEE_THE_END = 3.0  # pages look once a second


class LiveServer:
    """A server that listens at once, and answers while `run` runs.

    Attributes
    ----------
    address
        With the token. Anyone with this address can view and stop the run.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._listener = _listener(port)
        self.address = f"http://{HOST}:{self._listener.getsockname()[1]}/{token}/"
        self._view = LiveView(folder)
        self._thread = ThreadPoolExecutor(1)  # a journal stays with the thread that opened it
        self._last_look, self._end_was_seen = -math.inf, threading.Event()
        self._server = uvicorn.Server(
            uvicorn.Config(
                make_app(token, self._look, Interrupter(folder).interrupt),
                lifespan="off",
                ws="none",
                proxy_headers=False,
                server_header=False,
                access_log=False,
                log_level="error",
                timeout_graceful_shutdown=1,
            )
        )

    def run(self) -> None:
        """Answer until a signal or `end` ends it."""
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._thread.submit(self._view.close).result()
            self._thread.shutdown()
            self._listener.close()

    def end(self) -> None:
        """Make `run` return soon. Any thread may call it."""
        self._server.should_exit = True

    def end_with_the_run(self) -> None:
        """Make `run` return once an open page has had time to see how the run ended."""
        if time.monotonic() - self._last_look < _SECONDS_TO_SEE_THE_END:
            self._end_was_seen.wait(_SECONDS_TO_SEE_THE_END)
        self.end()

    def _look(self) -> asyncio.Future[dict[str, Any]]:
        return asyncio.get_running_loop().run_in_executor(self._thread, self._view_for_a_page)

    def _view_for_a_page(self) -> dict[str, Any]:
        shown = self._view.look()
        self._last_look = time.monotonic()
        if shown["status"] == "ended":
            self._end_was_seen.set()
        return shown


def serve(folder: Path, port: int, tell: Callable[[str], object]) -> None:
    """Serve the page of a run until Ctrl-C; `tell` gets its address."""
    server = LiveServer(folder, port)
    tell(server.address)
    server.run()


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise BadInputError(
            f"Cannot listen on port {port}: {error.strerror}. Choose another port, or 0 for a free "
            "one."
        ) from None
    return listener

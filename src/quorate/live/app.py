"""The web application: a page, the state of the run as JSON, and a request to stop the run.

The first part of every path is a secret token. A request without it is answered with 403.
"""

import asyncio
import secrets
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quorate.results.html import palette

HOST = "127.0.0.1"
_NAMES = [HOST, "localhost"]  # another name means that a foreign page sent the browser here
_REFUSAL = "The token is missing from the address."
_FILES = {"": "page.html", "page.js": "page.js", "page.css": "page.css"}
_MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(
    token: str,
    look: Callable[[], asyncio.Future[dict[str, Any]]],
    interrupt: Callable[[], bool],
) -> Starlette:
    """The application.

    Parameters
    ----------
    token
        First part of every path.
    look
        Returns the state of the run; see `quorate.live.view.LiveView`.
    interrupt
        Asks the run to end; returns whether a process of this machine makes the run.
    """

    async def state(request: Request) -> Response:
        return JSONResponse(await look())

    async def stop(request: Request) -> Response:
        if request.headers.get("origin") != f"http://{request.headers['host']}":
            return PlainTextResponse("Only the page itself may stop the run.", 403)
        if not interrupt():
            return PlainTextResponse("No process on this machine makes this run.", 409)
        return PlainTextResponse("The run is stopping.", 202)

    return Starlette(
        routes=[
            *(_file(f"/{token}/{path}", name) for path, name in _FILES.items()),
            Route(f"/{token}/state", state),
            Route(f"/{token}/stop", stop, methods=["POST"]),
        ],
        middleware=[
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=_NAMES, www_redirect=False),
            Middleware(_Guard, token=token),
        ],
    )


def _file(path: str, name: str) -> Route:
    text = files("quorate.live").joinpath(name).read_text("utf-8")
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    if media_type == "text/css":
        text = palette() + text

    async def answer(request: Request) -> Response:
        return Response(text, media_type=media_type)

    return Route(path, answer)


class _Guard:
    """Refuses every request whose path does not begin with the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = scope["path"].split("/")[1:2]
        known = given and secrets.compare_digest(given[0].encode("utf-8", "replace"), self._token)
        answer = self._app if known else PlainTextResponse(_REFUSAL, 403)
        await answer(scope, receive, send)


class _Headers:
    """Adds headers to every answer that keep the page and its address private."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)

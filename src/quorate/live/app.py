"""What the server answers: a page, what it shows as JSON, and a request to stop the run.

The first part of every path is a secret token. Nothing else lets anybody in: whoever has no token
is told nothing but that.
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

HOST = "127.0.0.1"
_NAMES = [HOST, "localhost"]  # by any other, a page of a stranger has led the browser here
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
    look
        How the run is; see `quorate.live.view.View`.
    interrupt
        Asks the run to end, and says whether there was anybody to ask.
    """

    async def state(request: Request) -> Response:
        return JSONResponse(await look())

    async def stop(request: Request) -> Response:
        if request.headers.get("origin") != f"http://{request.headers['host']}":
            return PlainTextResponse("only the page itself may ask for this", 403)
        if not interrupt():
            return PlainTextResponse("nobody goes on with this run", 409)
        return PlainTextResponse("asked", 202)

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
        answer = self._app if known else PlainTextResponse("the address lacks its token", 403)
        await answer(scope, receive, send)


class _Headers:
    """Puts on every answer what keeps a browser from telling, keeping or mixing things."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)

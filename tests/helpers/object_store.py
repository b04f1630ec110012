"""A server on this machine that speaks as much of S3 as reading takes: list, head, and get."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_TIME = "2026-01-01T00:00:00.000Z"


class _Handler(BaseHTTPRequestHandler):
    """Serves the files of a folder, whose sub-folders are buckets."""

    protocol_version = "HTTP/1.1"
    folder: Path
    asked: list[str]

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._object(with_body=False)

    def do_GET(self) -> None:
        options = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "list-type" in options:
            self._list(options)
        else:
            self._object(with_body=True)

    def _object(self, *, with_body: bool) -> None:
        file = self.folder / unquote(urlsplit(self.path).path).strip("/")
        if not file.is_file():
            self._answer(200 if file.is_dir() and file.parent == self.folder else 404, b"")
            return
        content, span = file.read_bytes(), self.headers.get("Range")
        status, more = 200, {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "ETag": '"1"'}
        if span and with_body:
            first, last = (int(n) for n in span.removeprefix("bytes=").split("-"))
            more["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content, status = content[first : last + 1], 206
            self.asked.append(f"{file.name} {first}-{last}")
        self._answer(status, content, more, with_body=with_body)

    def _list(self, options: dict[str, list[str]]) -> None:
        bucket = self.folder / unquote(urlsplit(self.path).path).strip("/")
        prefix = options.get("prefix", [""])[0]
        deep = "delimiter" not in options
        keys = sorted(str(file.relative_to(bucket)) for file in bucket.rglob("*") if file.is_file())
        found = [key for key in keys if key.startswith(prefix)]
        files = [key for key in found if deep or "/" not in key.removeprefix(prefix)]
        listed = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_TIME}</LastModified>"
            f"<Size>{(bucket / key).stat().st_size}</Size></Contents>"
            for key in files
        )
        self._answer(
            200,
            f"<ListBucketResult><Name>{bucket.name}</Name><KeyCount>{len(files)}</KeyCount>"
            f"<IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode(),
            {"Content-Type": "application/xml"},
        )

    def _answer(
        self,
        status: int,
        content: bytes,
        more: dict[str, str] | None = None,
        *,
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body and self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def object_store(folder):
    """Serve a folder of buckets; yields options for URLs, and a list of ranges that were read."""
    asked = []
    handler = type("Handler", (_Handler,), {"folder": Path(folder), "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            host = f"127.0.0.1:{server.server_port}"
            yield f"endpoint_override={host}&scheme=http&region=nowhere", asked
        finally:
            server.shutdown()
            thread.join()

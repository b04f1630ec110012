"""A live page that is served, and somebody who asks for it."""

import http.client
import json
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

from helpers.processes import PATIENCE
from quorate.live.server import LiveServer


class Client:
    """Somebody who asks a server for things."""

    def __init__(self, address):
        parts = urlsplit(address)
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path
        self.token = self.path.strip("/")
        self.origin = f"http://{self.host}:{self.port}"

    def ask(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def status(self, path, method="GET", **headers):
        return self.ask(path, method, **headers)[0].status

    def state(self):
        return json.loads(self.ask(f"{self.path}state")[1])


@contextmanager
def served(folder):
    """The page of a run, and a client of its server."""
    server = LiveServer(folder)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Client(server.address)
    finally:
        server.end()
        thread.join()

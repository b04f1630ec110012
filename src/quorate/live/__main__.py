"""The server as a process: prints its address, and ends when its standard input ends."""

import sys
import threading
from pathlib import Path

from quorate.live.server import LiveServer


def _end_with_input(server: LiveServer) -> None:
    sys.stdin.buffer.read()
    server.end_with_the_run()


server = LiveServer(Path(sys.argv[1]))
sys.stdout.write(f"{server.address}\n")
sys.stdout.flush()
threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
server.run()

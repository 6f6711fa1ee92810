"""`ksivi fit --live`: a page with the progress, which only this machine can open.

Nothing that happens to the page ends the fit.
"""

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ..results import Record
from ._shared import notes

_REFRESH_S = 3
_MOST_CONNECTIONS, _LONGEST_S = 16, 10
"""More connections are closed at once, and those that last longer are closed too."""


class Watch:
    """A callback that updates the page of a running fit. It raises nothing."""

    def __init__(self, title: str):
        self._title = title
        self._steps: list[int] = []
        self._losses: list[float] = []
        self._html = self._page("Searching for a start.")
        self._is_watched, self._is_over, self._taken = False, False, threading.Event()

    def __call__(self, chunk: Any) -> None:
        with contextlib.suppress(Exception):
            self._show(chunk)

    def _show(self, chunk: Any) -> None:
        self._steps.append(chunk.step)
        self._losses.append(chunk.loss)
        left = (chunk.num_steps - chunk.step) / max(chunk.steps_per_second, 1e-9)
        speed = f"{chunk.steps_per_second:,.0f} steps/s, at most {left:,.0f} s of training left"
        self._html = self._page(
            f"Step {chunk.step:,} of at most {chunk.num_steps:,}, loss {chunk.loss:.4g}, {speed}."
        )

    def answer(self) -> bytes:
        """The current page, for a browser that asks for it."""
        self._is_watched, is_over, body = True, self._is_over, self._html.encode(errors="replace")
        if is_over:
            self._taken.set()
        return body

    def finish(self, record: Record) -> None:
        """Waits a few seconds, so that an open browser gets the page of the finished run."""
        from ..report import run_page

        with contextlib.suppress(Exception):
            if self._is_watched:
                self._html = run_page(record)
                self._is_over = True
                self._taken.wait(2 * _REFRESH_S)

    def _page(self, words: str) -> str:
        from ..report import growing_curve, note, page

        curve = growing_curve(self._steps, self._losses) if len(self._steps) > 1 else ""
        return page(f"{self._title} (running)", note(words) + curve, refresh_s=_REFRESH_S)


class _Server(ThreadingHTTPServer):
    """A server with a limited number of connections, each for a limited time."""

    request_queue_size = 4 * _MOST_CONNECTIONS

    def __init__(self, handler: type[BaseHTTPRequestHandler]):
        super().__init__(("127.0.0.1", 0), handler)
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A time limit for each read would not end a connection that sends a byte now and then.
        end = threading.Timer(_LONGEST_S, _shut, (request,))
        end.daemon = True
        try:
            end.start()
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints nothing. The browser asks again."""


def _shut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def serving(title: str) -> Iterator[Watch]:
    """Serves the page on the loopback address, at a secret path, until the run ends."""
    watch, token = Watch(title), secrets.token_urlsafe(16)

    class Handler(BaseHTTPRequestHandler):
        timeout = _LONGEST_S

        def do_GET(self) -> None:
            found = self._is_local() and secrets.compare_digest(
                self.path.encode(), f"/{token}/".encode()
            )
            body = watch.answer() if found else b"not here"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8" if found else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def _is_local(self) -> bool:
            """Whether the request is for this address, and not from another site."""
            own = f"127.0.0.1:{server.server_port}"
            return (
                self.headers.get("Host") == own
                and self.headers.get("Origin", f"http://{own}") == f"http://{own}"
            )

        def log_message(self, *_: Any) -> None:
            """Logs nothing, because the terminal shows the progress bar."""

    server = _Server(Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    notes.print(
        f"live: http://127.0.0.1:{server.server_port}/{token}/", highlight=False, soft_wrap=True
    )
    try:
        yield watch
    finally:
        server.shutdown()
        server.server_close()

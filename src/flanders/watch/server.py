"""The web server of the live page, which shows a results file while it is written.

The server only reads the results file. The page loads nothing from other servers.
"""

from __future__ import annotations

import contextlib
import html as markup
import socket
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from flanders.checks import InputError, check_number
from flanders.report.html import fill_template, script_json, scripts, stylesheet
from flanders.results.schema import ResultsError
from flanders.watch.access import AccessCheck
from flanders.watch.feed import Feed

MOST_REQUESTS = 64
"""The most requests that are answered at the same time, so that many visitors cannot use up the memory."""


def make_app(results: Path, host: str, token: str | None) -> ASGIApp:
    """Return the web app that shows a results file. `AccessCheck` explains `host` and `token`."""
    feed, name = Feed(results), results.name
    page = fill_template(
        {
            "POLICY": "",  # the content security policy is in a header
            "KIND": "watch",
            "SOURCE": markup.escape(name),
            "SUMMARY": "",
            "STYLE": '<link rel="stylesheet" href="page.css">',
            "FOOTER": "This page reads the results file and changes nothing. It loads nothing from elsewhere.",
            "DATA": script_json(
                {"runs": [], "columns": [], "phases": [], "left_out": "", "name": name, "live": True}
            ),
            "SCRIPT": '<script src="page.js"></script>',
        }
    )
    script, style = scripts("live.js"), stylesheet()

    def show_results(request: Request) -> Response:
        return JSONResponse(feed.results(request.query_params.get("version", "")))

    def show_cells(request: Request) -> Response:
        query = request.query_params
        numbers = [query.get(key, "0") for key in ("since", "until")]
        if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
            return PlainTextResponse("`since` and `until` must be whole numbers below 10^9", status_code=400)
        since, until = map(int, numbers)
        try:
            cells = feed.cells(request.path_params["run"], since, until, query.get("epoch", ""))
        except ResultsError:
            cells = None
        return PlainTextResponse("no such run", 404) if cells is None else JSONResponse(cells)

    routes = [
        Route("/", lambda request: HTMLResponse(page)),
        Route("/page.js", lambda request: Response(script, media_type="text/javascript")),
        Route("/page.css", lambda request: Response(style, media_type="text/css")),
        Route("/api/results", show_results),
        Route("/api/runs/{run}", show_cells),
    ]
    return AccessCheck(Starlette(routes=routes), host, token)


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server for the app. The server does not name its software in its answers."""
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        limit_concurrency=MOST_REQUESTS,
    )
    return uvicorn.Server(config)


def serve(results: Path, host: str, port: int, token: str | None) -> None:
    """Serve the live page of a results file until the process is interrupted."""
    with listen(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        print(f"Watching {results}: open http://{shown}:{listening.getsockname()[1]}/ (Ctrl-C ends)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the usual way to end the server
            make_server(make_app(results, host, token)).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the port. Raise an `InputError` if the port cannot be opened."""
    check_number("flanders watch", "--port", port, 0, 65535, whole=True)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen()
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise InputError(
            f"Port {port} of {host} cannot be opened: {error}. Choose another port with --port. Port 0 means any "
            "free port."
        ) from error
    return listening

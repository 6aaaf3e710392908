"""The class `AccessCheck`: decides who may see the live page, and adds security headers to every answer.

The live page shows a results file while it is written. Without a token, only this machine can open the page. With a
token, everybody who knows the token can.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import secrets
from pathlib import Path
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flanders.checks import InputError

TOKEN_VARIABLE = "FLANDERS_WATCH_TOKEN"
"""The environment variable that may hold the token, the secret that a visitor has to enter."""
SHORTEST_TOKEN = 16
"""The fewest characters of a token. A shorter token could be guessed."""
LONGEST_FORM = 4096
"""The most bytes that are read of the form with the token. Without a limit, a visitor could fill the memory."""
WRONG_TOKEN_PAUSE = 1.0
"""How many seconds a request with a wrong token waits for its answer. Such requests wait one after the other, so
that nobody can try many tokens."""
MOST_WAITING = 8
"""The most requests with a wrong token that wait for an answer. Further requests get an error at once, so that they
do not hold connections open."""
COOKIE = "flanders-watch"
"""The name of the cookie that a visitor gets for entering the token."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of every answer. With them, browsers load nothing from other servers, do not show the page in a
frame, and store no copy."""
FORM = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>flanders watch</title><link rel="icon" href="data:,"><link rel="stylesheet" href="page.css"></head>
<body><main class="door"><p class="brand">flanders <span>watch</span></p><h1>Token needed</h1>
<form method="post" action="enter"><label for="token">The token that the server was started with</label>
<input type="text" name="name" value="flanders" autocomplete="username" hidden>
<input type="password" id="token" name="token" autocomplete="current-password" required autofocus>
<button type="submit">Enter</button></form>{problem}</main></body></html>
"""
"""The page on which a visitor enters the token."""


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(host: str, file: Path | None) -> str | None:
    """Return the token from `file`, or from the environment if `file` is None. Return None if there is no token.

    Raise an `InputError` if there is no token, but other machines can reach `host`.
    """
    token, where = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
    if file is not None:
        where = str(file)
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InputError(f"The token cannot be read from {file}: {why}. Name another file.") from error
    token = None if token is None else token.strip()
    if not token:
        if is_loopback(host):
            return None
        raise InputError(
            f"Other machines can reach {host}, so a token is needed. Write at least {SHORTEST_TOKEN} characters to "
            f"a file and name it with --token-file, or put them into the variable {TOKEN_VARIABLE}. Or choose "
            "127.0.0.1, which needs no token."
        )
    if len(token) < SHORTEST_TOKEN:
        raise InputError(
            f"The token in {where} has {len(token)} characters, which is easy to guess. Use at least "
            f"{SHORTEST_TOKEN}, e.g. those that `openssl rand -hex 16` prints."
        )
    return token


class AccessCheck:
    """A wrapper around the web app: it refuses requests without the token, and adds headers to every answer.

    Parameters
    ----------
    app
        The web app.
    host
        The address that the server listens on.
    token
        The secret that a visitor has to enter; None if no token is needed.
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None) -> None:
        self._app, self._token = app, token
        # The names by which a browser may call this server. With None, any name is allowed.
        self._names = {"127.0.0.1", "localhost", "[::1]", host} if is_loopback(host) else None
        self._session = secrets.token_urlsafe(32)  # the value of the cookie
        self._waiting = 0  # the number of requests with a wrong token that wait for an answer
        self._turn = asyncio.Lock()  # lets these requests wait one after the other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the app, or refuse it."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message.get("headers", [])}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *(pair for pair in extra if pair[0] not in own)]
            await send(message)

        request = Request(scope, receive)
        answer = await self._judge(request)
        await (self._app if answer is None else answer)(scope, receive, send_with_headers)

    async def _judge(self, request: Request) -> Response | None:
        """Return the answer to a request that is not passed on to the app; None if it is passed on."""
        host = request.headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host  # [::1] has colons but no port
        # Otherwise a foreign web site could make its name point to this machine, and read the page (DNS rebinding).
        if self._names is not None and name not in self._names:
            return PlainTextResponse("Open this page with 127.0.0.1 in place of this name.", status_code=421)
        if self._token is None or request.url.path == "/page.css":
            return None
        if request.url.path == "/enter" and request.method == "POST":
            return await self._enter(request)
        authorization = request.headers.get("authorization", "")
        if same(request.cookies.get(COOKIE, ""), self._session):
            return None
        if authorization:
            given = authorization.removeprefix("Bearer ")
            return None if same(given, self._token) else await self._refuse(PlainTextResponse("wrong token", 401))
        if request.url.path == "/" and request.method == "GET":
            return HTMLResponse(FORM.format(problem=""), status_code=401)
        return PlainTextResponse("token needed", status_code=401)

    async def _enter(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_FORM:
                return PlainTextResponse("too long", status_code=413)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not same(given.strip(), self._token or ""):
            problem = '<p class="message" role="alert">This is not the token.</p>'
            return await self._refuse(HTMLResponse(FORM.format(problem=problem), status_code=401))
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(
            COOKIE, self._session, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return answer

    async def _refuse(self, answer: Response) -> Response:
        """Return the answer to a wrong token, after a pause."""
        if self._waiting >= MOST_WAITING:
            return PlainTextResponse("too many wrong tokens, try again later", status_code=429)
        self._waiting += 1
        try:
            async with self._turn:
                await asyncio.sleep(WRONG_TOKEN_PAUSE)
        finally:
            self._waiting -= 1
        return answer


def same(given: str, right: str) -> bool:
    """Whether two texts are equal.

    The comparison takes equally long however many characters are right. So its time does not help to guess a token.
    """
    return hmac.compare_digest(given.encode(), right.encode())

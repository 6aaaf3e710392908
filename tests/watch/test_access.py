"""Who gets in: this machine, or whoever knows the token."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request

import pytest

import flanders.watch.access
from flanders.checks import InputError
from flanders.watch.access import HEADERS, is_loopback, read_token
from flanders.watch.server import listen

TOKEN = "correct horse battery staple"


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(flanders.watch.access, "WRONG_TOKEN_PAUSE", 0.01)


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def get(url, data=None, method=None, **headers):
    """Return status, headers and body of an answer."""
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay())
    try:
        with opener.open(request, timeout=300) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def test_this_machine_needs_no_token_and_every_answer_has_strict_headers(serve, writer):
    one = writer()
    one.write()
    url = serve()
    for path in ("", "page.js", "page.css", "api/results", f"api/runs/{one.id}?until=1", "nothing"):
        status, headers, _ = get(url + path)
        assert status == (404 if path == "nothing" else 200)
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert "server" not in headers or "uvicorn" not in headers["server"].lower()
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_a_page_elsewhere_that_points_its_name_at_this_machine_gets_nothing(serve, writer):
    writer().write()
    url = serve()
    assert get(url, Host="evil.example")[0] == 421
    assert get(f"{url}api/results", Host="evil.example:80")[0] == 421
    assert get(url, Host="localhost:1234")[0] == 200


def test_this_machine_has_its_names_with_and_without_a_port(serve, writer):
    writer().write()
    url = serve()
    for name in ("127.0.0.1", "localhost", "[::1]"):
        assert [get(url, Host=host)[0] for host in (name, f"{name}:80")] == [200, 200]
    for name in ("[::2]", "[::1].evil.example", "evil.example:[::1]", "[:", ""):
        assert get(url, Host=name)[0] == 421


def test_nothing_can_be_written(serve, writer):
    writer().write()
    url = serve()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert get(f"{url}api/results", data=b"x", method=method)[0] == 405
    assert get(f"{url}enter", data=b"token=x")[0] in (404, 405)


def test_without_the_token_there_is_only_a_form(serve, writer):
    one = writer()
    one.write()
    url = serve("0.0.0.0", TOKEN)
    status, _, body = get(url)
    assert status == 401
    assert "Token needed" in body
    assert "eve" not in body
    for path in ("api/results", f"api/runs/{one.id}", "page.js"):
        assert get(url + path)[0] == 401
    assert get(f"{url}page.css")[0] == 200


def test_a_wrong_token_is_refused_and_the_right_one_opens_the_door(serve, writer):
    writer().write()
    url = serve("0.0.0.0", TOKEN)
    for wrong in ("", "guess", TOKEN[:-1], f"{TOKEN}x", "é" * 30):
        status, headers, body = get(f"{url}enter", data=urllib.parse.urlencode({"token": wrong}).encode())
        assert status == 401
        assert "set-cookie" not in headers
        assert "not the token" in body
        assert get(f"{url}api/results", Authorization=f"Bearer {wrong}".encode().decode("latin-1"))[0] == 401
        assert get(f"{url}api/results", Cookie=f"flanders-watch={urllib.parse.quote(wrong)}")[0] == 401
    status, headers, _ = get(f"{url}enter", data=urllib.parse.urlencode({"token": TOKEN}).encode())
    assert status == 303
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in urllib.parse.unquote(cookie)
    assert get(f"{url}api/results", Cookie=cookie.partition(";")[0])[0] == 200
    assert get(f"{url}api/results", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_long_form_is_not_read(serve, writer):
    writer().write()
    url = serve("0.0.0.0", TOKEN)
    assert get(f"{url}enter", data=b"token=" + b"x" * 100_000)[0] == 413


def test_odd_questions_are_answered_without_a_failure(serve, writer):
    one = writer()
    one.write()
    url = serve()
    assert get(f"{url}api/runs/{one.id}?since=-1")[0] == 400
    assert get(f"{url}api/runs/{one.id}?since=1e9")[0] == 400
    assert get(f"{url}api/runs/{one.id}?since=999999999&until=5&epoch=x")[0] == 200
    assert get(f"{url}api/runs/..%2f..%2fetc%2fpasswd")[0] == 404
    assert get(f"{url}api/results?version=a-%00-9")[0] == 200


def test_other_machines_need_a_token_that_cannot_be_guessed(tmp_path, monkeypatch):
    monkeypatch.delenv("FLANDERS_WATCH_TOKEN", raising=False)
    assert read_token("127.0.0.1", None) is None
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org", ""):
        with pytest.raises(InputError, match="token is needed"):
            read_token(host, None)
    short, empty, good = (tmp_path / name for name in ("short", "empty", "good"))
    short.write_text("secret\n")
    empty.write_text(" \n")
    good.write_text(f"{TOKEN}\n")
    with pytest.raises(InputError, match="easy to guess"):
        read_token("0.0.0.0", short)
    with pytest.raises(InputError, match="token is needed"):
        read_token("0.0.0.0", empty)
    with pytest.raises(InputError, match="cannot be read"):
        read_token("0.0.0.0", tmp_path / "missing")
    assert read_token("0.0.0.0", good) == TOKEN
    monkeypatch.setenv("FLANDERS_WATCH_TOKEN", TOKEN)
    assert read_token("0.0.0.0", None) == TOKEN


def test_loopback_is_told_from_other_addresses():
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", ""))


def test_a_port_that_is_taken_is_explained():
    with listen("127.0.0.1", 0) as taken, pytest.raises(InputError, match="cannot be opened"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(InputError, match="65535"):
        listen("127.0.0.1", 99999)

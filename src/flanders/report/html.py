"""Writes the report of the command `flanders report`: one HTML file that needs no server and no network."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import math
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from flanders.files import check_target, write_atomically, writing
from flanders.report.client_cells import PageData
from flanders.report.payload import build_payload
from flanders.report.run_reading import MOST_ROWS, read_results

SCRIPTS = (
    "page.js",
    "cells.js",
    "overview.js",
    "lines.js",
    "rounds.js",
    "clients.js",
    "heatmap.js",
    "distributions.js",
    "bars.js",
    "table.js",
    "main.js",
)
"""The scripts of the page, in order. A script may use the scripts before it.

One more script comes last and starts the page: `static.js` in a report, `live.js` in the page of `flanders watch`.
"""


def write_html(results: Path, html: Path) -> None:
    """Write the report of a results file: one self-contained page that opens offline.

    Parameters
    ----------
    results
        The results file of `flanders run`. If a run is not done, the page shows its finished rounds.
    html
        The file to write the page to. Its folder must exist. An old page is replaced when the new page is complete.
        A results file is never replaced.
    """
    check_target(Path(html))
    page = render_page(build_payload(read_results(Path(results), MOST_ROWS)), Path(results).name)
    with writing(Path(html).parent, str(html)):
        write_atomically(html, page)


def render_page(payload: PageData, source: str) -> str:
    """Return the page with its data, its style and its scripts.

    The page forbids the browser to use any other style or script: its content security policy has the hashes of
    this style and this script. `source` is the name of the results file.
    """
    style, script = "\n" + stylesheet(), "\n" + scripts("static.js")
    policy = (
        f"default-src 'none'; style-src '{_hash_of(style)}'; script-src '{_hash_of(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    written = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    return fill_template(
        {
            "POLICY": f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            "KIND": "report",
            "SOURCE": markup.escape(source),
            "SUMMARY": markup.escape(payload["summary"]),
            "STYLE": f"<style>{style}</style>",
            "FOOTER": f"Written {written} from {markup.escape(source)}. This file loads nothing and sends nothing.",
            "DATA": script_json({**payload, "name": source, "live": False}),
            "SCRIPT": f"<script>{script}</script>",
        }
    )


def fill_template(parts: dict[str, str]) -> str:
    """Return the page's HTML template, with each `{{NAME}}` replaced by the part of this name."""
    pieces = _asset("report.html").split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, _, rest in (p.partition("}}") for p in pieces[1:]))


def stylesheet() -> str:
    """Return the style of the page."""
    return _asset("report.css")


def scripts(last: str) -> str:
    """Return all scripts of the page joined into one, with `last` at the end."""
    body = "\n".join(_asset(name) for name in (*SCRIPTS, last))
    return f'"use strict";\n(() => {{\n{body}\n}})();\n'


def script_json(value: object) -> str:
    r"""Return a value as JSON that is safe inside a script element: no text in it ends the element.

    Examples
    --------
    >>> script_json({"note": "</script><!--"})
    '{"note":"\\u003c/script>\\u003c!--"}'
    """
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:  # a spec in a damaged file contains NaN or infinity
        return script_json(_without_nan(value))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _without_nan(value: object) -> object:
    """Return a value in which every NaN and infinity is None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    return [_without_nan(entry) for entry in value] if isinstance(value, list | tuple) else value


def _hash_of(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (files("flanders.report") / "assets" / name).read_text(encoding="utf-8")

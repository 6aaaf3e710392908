"""The report: one HTML file that shows a results file. It needs no server and no network."""

from __future__ import annotations

import html as markup
import json
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from flanders.files import check_target, write_atomically, writing
from flanders.report.payload import PageData, build_payload
from flanders.report.run_data import read_results

SCRIPTS = ("page.js", "lines.js", "heatmap.js", "distributions.js", "bars.js", "table.js", "main.js")


def write_html(results: Path, html: Path) -> None:
    """Write the report of a results file: one self-contained page that opens offline.

    Parameters
    ----------
    results
        The results file of `flanders run`. The run may still go on: the page shows the rounds finished so far.
    html
        Where to write the page. The folder must exist. An old page is replaced once the new one is complete; a
        results file is never replaced.
    """
    check_target(Path(html))
    page = render_page(build_payload(read_results(Path(results))), Path(results).name)
    with writing(Path(html).parent, str(html)):
        write_atomically(html, page)


def render_page(payload: PageData, source: str) -> str:
    """Put the data, the style and the scripts into the page."""
    assets = files("flanders.report") / "assets"
    written = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    parts = {
        "SOURCE": markup.escape(source),
        "SUMMARY": markup.escape(payload["summary"]),
        "WRITTEN": written,
        "STYLE": (assets / "report.css").read_text(encoding="utf-8"),
        "SCRIPT": "\n".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS),
        "DATA": script_json(payload),
    }
    template = (assets / "report.html").read_text(encoding="utf-8")
    pieces = template.split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, _, rest in (p.partition("}}") for p in pieces[1:]))


def script_json(value: object) -> str:
    r"""Return JSON that is safe inside a script element.

    Examples
    --------
    >>> script_json({"note": "</script><!--"})
    '{"note":"\\u003c/script>\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")

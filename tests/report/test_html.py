from __future__ import annotations

import base64
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.report import write_html
from flanders.report.data import read_results
from flanders.report.html import embed
from flanders.report.payload import KEPT, MALICIOUS, PRESENT, build, number, share


def payload_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.fixture
def page(results, tmp_path):
    write_html(results, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_page_names_its_source_and_sums_it_up(page):
    assert "<title>results.sqlite – flanders report</title>" in page
    assert "3 runs · digits · mlp2 · 20 clients · 6 rounds" in page


@pytest.mark.parametrize("part", ["lines", "heat", "scores", "detection", "time", "runs", "filter", "run", "spec"])
def test_the_page_has_every_part(page, part):
    assert f'id="{part}"' in page


def test_the_page_refers_to_nothing_outside_itself(page):
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "{{" not in page.split('id="data"')[0]


def test_the_page_holds_the_results(page, results):
    data, runs = payload_of(page), read_results(results)
    assert [run["label"] for run in data["runs"]] == [
        "fedavg · no attack",
        "fedavg · lie 80%",
        "flanders + fedavg · lie 80%",
    ]
    assert data["start"] == 2
    shown, run = data["runs"][2], runs[2]
    np.testing.assert_allclose(shown["accuracy"], run.accuracy, rtol=1e-3)
    assert shown["twin"] == 0
    assert shown["siblings"] == [1, 2]
    flags = np.frombuffer(base64.b64decode(shown["clients"]["flags"]), np.uint8).reshape(20, 6)
    score = np.frombuffer(base64.b64decode(shown["clients"]["score"]), "<f4").reshape(20, 6)
    np.testing.assert_array_equal(flags & PRESENT > 0, run.present)
    np.testing.assert_array_equal(flags & MALICIOUS > 0, run.malicious)
    np.testing.assert_array_equal(flags & KEPT > 0, run.kept)
    np.testing.assert_allclose(score, run.score, rtol=1e-6)
    assert shown["detection"]["recall"] == number(run.detection.recall)
    assert data["left_out"] == ""


def test_text_from_the_results_cannot_leave_the_script_element(write, make_spec, tmp_path):
    spec = make_spec(model={"name": "</script><script>alert(1)</script><!--\u2028"})
    path = write(tmp_path / "<b>odd & 'x'.sqlite", [(spec, [], "failed")])
    write_html(path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in page
    assert "<b>" not in page.split("<style>")[0] + page.split("</style>")[1].split("<script>")[0]
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert payload_of(page)["runs"][0]["message"] == "InputError: the data </script><b>vanished</b>"


def test_embedded_json_reads_back_as_it_was():
    value = {"a": "</script>\u2028<!--", "b": [1, None, 0.5]}
    assert json.loads(embed(value)) == value


def test_braces_in_names_are_no_template(write, make_spec, tmp_path):
    path = write(tmp_path / "{{DATA}}.sqlite", [(make_spec(model={"name": "{{STYLE}}"}), [], "pending")])
    write_html(path, tmp_path / "report.html")
    assert "<h1>{{DATA}}</h1>" in (tmp_path / "report.html").read_text().replace(".sqlite", "")


def test_numbers_keep_four_digits_and_json():
    assert [number(x) for x in (0.123456, 12345.6, 3.0, float("nan"), float("inf"))] == [
        0.1235,
        12350,
        3,
        None,
        None,
    ]


def test_empty_results_and_unfinished_runs_give_a_page(write, make_spec, tmp_path):
    empty = write(tmp_path / "empty.sqlite", [])
    write_html(empty, tmp_path / "empty.html")
    assert "No runs yet." in (tmp_path / "empty.html").read_text(encoding="utf-8")
    runs = [(make_spec(seed=n), [], end) for n, end in enumerate(("pending", "running", "failed"))]
    write_html(write(tmp_path / "begun.sqlite", runs), tmp_path / "begun.html")
    data = payload_of((tmp_path / "begun.html").read_text(encoding="utf-8"))
    assert data["summary"] == "3 runs (1 pending, 1 running, 1 failed) · digits · mlp2"
    assert [run["clients"]["total"] for run in data["runs"]] == [0, 0, 0]


def test_a_large_grid_shows_fewer_clients_and_says_so(results):
    runs = read_results(results)
    assert share(runs, cells=360) == [20, 20, 20]
    assert share(runs, cells=200) == [11, 11, 11]
    assert share(runs, cells=100) == [0, 8, 8]
    data = build(runs, cells=200)
    assert "a sample of the clients for 3 runs" in data["left_out"]
    assert [run["clients"]["shown"] for run in data["runs"]] == [11, 11, 11]
    assert data["runs"][2]["detection"] == build(runs)["runs"][2]["detection"]
    assert "leaves out the clients of 1 run." in build(runs, cells=100)["left_out"]


def test_a_place_that_cannot_be_written_is_explained(results, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_html(results, tmp_path / "file" / "report.html")
    with pytest.raises(InputError, match="cannot be written"):
        write_html(results, tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_an_old_report_is_replaced(results, tmp_path):
    (tmp_path / "report.html").write_text("old")
    write_html(results, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_page_needs_neither_torch_nor_matplotlib():
    code = "import sys, flanders.report; sys.exit(bool({'torch', 'matplotlib', 'flwr'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

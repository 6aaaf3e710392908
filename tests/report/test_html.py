from __future__ import annotations

import base64
import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.record import ClientRecord, Fate
from flanders.report import write_html
from flanders.report.html import script_json
from flanders.report.payload import build_payload, json_number, share_cells
from flanders.report.run_data import YES
from flanders.report.run_reading import read_results
from round_records import round_record


def payload_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def unpacked(field, shape):
    """The values of a field of the payload, as the page decodes them."""
    kinds = {"number": "<f4", "answer": "u1", "text": f"<u{field.get('bytes')}"}
    values = np.frombuffer(base64.b64decode(field["data"]), kinds[field["kind"]]).reshape(shape)
    return np.array(field["words"])[values] if field["kind"] == "text" else values


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
    assert [(run["attack"], run["defence"]) for run in data["runs"]][2] == ("lie 80%", "flanders + fedavg")
    shown, run = data["runs"][2], runs[2]
    np.testing.assert_allclose(shown["accuracy"], run.accuracy, rtol=1e-3)
    assert shown["twin"] == 0
    assert shown["siblings"] == [1, 2]
    fields = shown["clients"]["fields"]
    fate = unpacked(fields["fate"], (20, 6))
    np.testing.assert_array_equal(fate != "", run.present)
    np.testing.assert_array_equal(fate == "kept", run.kept)
    np.testing.assert_array_equal(unpacked(fields["malicious"], (20, 6)) == YES, run.malicious)
    np.testing.assert_allclose(unpacked(fields["score"], (20, 6)), run.score, rtol=1e-6)
    np.testing.assert_allclose(shown["threshold"][1:], run.threshold[1:], rtol=1e-3)
    assert shown["detection"]["recall"] == json_number(run.detection.recall)
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
    assert json.loads(script_json(value)) == value


def test_braces_in_names_are_no_template(write, make_spec, tmp_path):
    path = write(tmp_path / "{{DATA}}.sqlite", [(make_spec(model={"name": "{{STYLE}}"}), [], "pending")])
    write_html(path, tmp_path / "report.html")
    assert ">{{DATA}}</h1>" in (tmp_path / "report.html").read_text().replace(".sqlite", "")


def test_numbers_keep_four_digits_and_json():
    assert [json_number(x) for x in (0.123456, 12345.6, 3.0, float("nan"), float("inf"))] == [
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
    assert share_cells(runs, cells=360) == [20, 20, 20]
    assert share_cells(runs, cells=200) == [11, 11, 11]
    assert share_cells(runs, cells=100) == [0, 8, 8]
    data = build_payload(runs, cells=200)
    assert "shows 11 of 20 clients one by one for 3 runs" in data["left_out"]
    assert share_cells(runs, cells=205) == [11, 11, 12]
    assert "shows only some of the clients one by one for 3 runs" in build_payload(runs, cells=205)["left_out"]
    assert [run["clients"]["shown"] for run in data["runs"]] == [11, 11, 11]
    assert data["runs"][2]["detection"] == build_payload(runs)["runs"][2]["detection"]
    assert "leaves out the clients of 1 run." in build_payload(runs, cells=100)["left_out"]


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


def test_every_field_of_a_clients_record_reaches_the_page(results):
    shown = build_payload(read_results(results))["runs"][2]["clients"]["fields"]
    assert set(shown) == {field.name for field in dataclasses.fields(ClientRecord)} - {"client"}


def test_the_page_holds_fate_and_reason_of_every_client(write, make_spec, tmp_path):
    fates, reasons = [*Fate], ["", "too long", "not finite", "dropped too often", "no reply"]
    rounds = [round_record(1, range(5), fates=fates, reason=reasons, score=[1, 9, None, None, None])]
    path = write(tmp_path / "fates.sqlite", [(make_spec(), rounds, "done")])
    [run] = build_payload(read_results(path))["runs"]
    assert run["fates"] == dict.fromkeys(map(str, Fate), 1)
    assert unpacked(run["clients"]["fields"]["fate"], 5).tolist() == [str(fate) for fate in Fate]
    assert unpacked(run["clients"]["fields"]["reason"], 5).tolist() == reasons
    assert run["threshold"] == [1]


def test_too_many_reasons_are_cut_the_rare_ones_first_and_the_page_says_so(write, make_spec, tmp_path):
    reasons = ["often", "often", "rare as such"]
    rounds = [round_record(1, range(3), fates=["dropped"] * 3, reason=reasons)]
    runs = read_results(write(tmp_path / "many.sqlite", [(make_spec(), rounds, "done")]))
    data = build_payload(runs, characters=10)
    assert unpacked(data["runs"][0]["clients"]["fields"]["reason"], 3).tolist() == ["often", "often", ""]
    assert "leaves out the rarer reasons of 1 run" in data["left_out"]


def test_numbers_that_json_does_not_have_become_null():
    assert script_json({"spec": {"size": float("nan")}, "list": [1.5, float("inf")]}) == (
        '{"spec":{"size":null},"list":[1.5,null]}'
    )

from __future__ import annotations

import builtins
import itertools
import json
import os
import pty
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import flanders
from experiments import fake_simulation
from experiments.conftest import SCRIPT, SPEC
from flanders import ATTACKS, FILTERS
from flanders.choices import KINDS, registry
from flanders.cli import commands, listing, main
from flanders.experiments import progress
from flanders.experiments.progress import watching
from flanders.record import Fate
from flanders.report import text as show
from round_records import with_clients
from settings import changed


@pytest.fixture
def cli(monkeypatch, tmp_path, capsys):
    """Runs the command in an empty folder with the small simulator; returns exit code, output, errors."""
    fake_simulation.use(monkeypatch)
    monkeypatch.delenv("FLANDERS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC)

    def run(*arguments):
        code = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


def test_a_run_ends_with_a_table_and_where_the_results_lie(cli, tmp_path):
    code, out, err = cli("run", "spec.toml")
    assert code == 0
    header, *rows = out.splitlines()
    columns = ["run", "attack", "r", "filter", "aggregator", "seed", "status", "rounds", "best", "final"]
    assert header.split() == [*columns, "precision", "recall"]
    assert len(rows) == 5
    assert re.match(r"\w{8}  gauss   0.25  flanders  fedavg      0     done    6/6  ", rows[0])
    assert rows[-1] == "Results: results.sqlite"
    assert "[4/4]" in err.splitlines()[-1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results.sqlite", "spec.toml"]


def test_a_second_run_of_the_same_spec_runs_nothing(cli):
    cli("run", "spec.toml")
    code, out, err = cli("run", "spec.toml")
    assert (code, err) == (0, "")
    assert out.count("done") == 4
    code, _, err = cli("run", "spec.toml", "--set", "federation.seed=[1, 2]")
    assert code == 0
    assert len(err.splitlines()) == 2


def test_a_dry_run_lists_the_runs_and_touches_nothing(cli, tmp_path):
    code, out, _ = cli("run", "spec.toml", "--dry-run", "--set", "federation.seed=7")
    assert code == 0
    assert [line.split("  ")[1] for line in out.splitlines()] == [
        "synthetic, gauss r=0.25, flanders + fedavg, seed 7",
        "synthetic, gauss r=0.25, keep-all + fedavg, seed 7",
    ]
    assert not (tmp_path / "results.sqlite").exists()


def test_variants_are_told_apart_wherever_runs_are_named(cli):
    variants = "filter.name=[{name = 'flanders', keep = 0.5}, {name = 'flanders', keep = 'm-b'}]"
    asked = ("run", "spec.toml", "--set", variants, "--set", "federation.seed=7")
    _, out, _ = cli(*asked, "--dry-run")
    assert [line.split("  ")[1] for line in out.splitlines()] == [
        "synthetic, gauss r=0.25, flanders + fedavg, seed 7, filter.keep=0.5",
        "synthetic, gauss r=0.25, flanders + fedavg, seed 7, filter.keep=6",
    ]
    _, out, err = cli(*asked)
    assert [re.search(r"keep=([\w.]+): done", line)[1] for line in err.splitlines()] == ["0.5", "6"]
    header, *rows, _ = out.splitlines()
    assert [dict(zip(header.split(), row.split(), strict=True))["filter.keep"] for row in rows] == ["0.5", "6"]
    assert "filter.keep" in cli("show", "results.sqlite")[1]
    rates = ("--set", "training.learning_rate=[1e-4, 2e-4]", "--set", "filter.name=keep-all")
    assert "  0.0001 " in cli("run", "spec.toml", *rates)[1]


def test_what_follows_from_what_is_told_already_needs_no_column(cli):
    changes = ("--set", "threat.fraction=[0.25, 0.5]", "--set", "data.dataset=['synthetic', 'digits']")
    _, out, _ = cli("run", "spec.toml", *changes)
    header = out.splitlines()[0].split()
    assert header[:3] == ["run", "data", "attack"]
    assert not any("." in column for column in header)


def test_a_failing_run_makes_the_exit_code_one_and_is_tried_again_on_resume(cli, monkeypatch):
    code, out, err = cli("run", "spec.toml", "--set", "federation.seed=[13, 2]", "--set", "run.checkpoint_every=1")
    assert code == 1
    assert out.count("failed") == out.count("done") == 2
    assert "ArithmeticError: the thirteenth seed brings no luck" in err
    assert "2 of 4 runs failed. To try them again: flanders resume results.sqlite" in err
    step = fake_simulation.Simulation.step
    monkeypatch.setattr(fake_simulation.Simulation, "step", lambda self: step(mended(self)))
    code, out, err = cli("resume")
    assert code == 0
    assert out.count("done") == 4
    assert "continues after round 1" in err


def test_a_run_that_cannot_be_built_does_not_keep_the_others_from_going_on(cli, tmp_path):
    data = ("--set", "data.dataset=['mnist', 'synthetic']", "--set", "federation.seed=0")
    cli("run", "spec.toml", "--set", "federation.seed=13")  # so that there are results, all failed
    code, out, err = cli("run", "spec.toml", *data, "--data-dir", tmp_path)
    assert code == 1
    assert out.count("failed") == out.count("done") == 2
    assert re.search(r"failed: \w{16}, \w{16}: InputError: No files of mnist were found", err)
    assert (
        "2 of 4 runs failed. 2 failed because of their specs: correct the specs, or the files that they name.\n"
        in err
    )
    code, out, err = cli("resume", "--data-dir", tmp_path, "--device", "cuda")
    assert code == 2
    assert re.search(r"flanders: Run \w{16}: There is no GPU here", err)
    statuses = [run["status"] for run in json.loads(cli("show", "results.sqlite", "--json")[1])]
    assert sorted(statuses) == ["done"] * 2 + ["failed"] * 4


def test_where_a_run_failed_is_told_in_one_line_and_in_full_on_request(cli):
    _, _, err = cli("run", "spec.toml", "--set", "federation.seed=13", "--set", "filter.name=keep-all")
    assert re.search(r"no luck \(in fake_simulation.py:\d+\)", err)
    (run,) = json.loads(cli("show", "results.sqlite", "--json")[1])
    out = cli("show", "results.sqlite", run["id"])[1]
    assert "Traceback (most recent call last):" in out
    assert "fake_simulation.py" in out


def test_updates_that_are_not_finite_show_in_the_tables(cli, monkeypatch):
    assert "unusable" not in cli("run", "spec.toml", "--set", "federation.seed=1")[1]
    step = fake_simulation.Simulation.step

    def diverged(self):
        record = step(self)
        fates = [Fate.REFUSED if i < 3 and record.number > 4 else c.fate for i, c in enumerate(record.clients)]
        return with_clients(record, fate=fates)

    monkeypatch.setattr(fake_simulation.Simulation, "step", diverged)
    _, out, _ = cli("run", "spec.toml", "--set", "federation.seed=2", "--set", "filter.name=keep-all")
    header, row, _ = out.splitlines()
    assert header.endswith("  unusable")
    assert row.endswith("  6")
    out = cli("show", "results.sqlite", row.split()[0])[1]
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("round "))
    assert "refused" in lines[at]
    place = lines[at].split().index("refused")
    assert [line.split()[place] for line in lines[at + 1 : at + 7]] == ["0"] * 4 + ["3"] * 2


def mended(simulation):
    simulation.setting = changed(simulation.setting, seed=14)
    return simulation


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["run", "gone.toml"], "There is no file gone.toml. Name a TOML file."),
        (["run", "spec.toml", "--set", "federation.rounds=x"], "--set federation.rounds must be a whole number"),
        (
            ["run", "spec.toml", "--set", "federation.num_clients=0"],
            "--set federation.num_clients: The `num_clients` parameter",
        ),
        (["run", "spec.toml", "--set", "federatoin.rounds=3"], "--set federatoin.rounds: there is no table"),
        (["run", "spec.toml", "--set", "threat.fraction=2"], "--set threat.fraction: The `fraction` parameter"),
        (["run", "spec.toml", "--set", "aggregator=fltrust"], "needs a step that the server trains"),
        (["study", "window", "--attacks", ""], "There is no attack named ''"),
        (["run", "spec.toml", "--set", "threat.attack=gaus"], "Did you mean 'gauss'?"),
        (["run", "spec.toml", "--set", "rounds"], "--set needs key=value"),
        (["run", "spec.toml", "--device", "cuda"], "There is no GPU here"),
        (["run", "spec.toml", "--jobs", "0"], "--jobs must be at least 1"),
        (["run", "spec.toml", "--out", "gone/results.sqlite"], "there is no folder"),
        (["run", "spec.toml", "--out", "."], "is a folder"),
        (["run", "spec.toml", "--out", "/proc/results.sqlite"], "cannot be "),
        (["run", "spec.toml", "--out", "spec.toml"], "spec.toml is a spec, not a results file"),
        (["resume"], "There are no results at results.sqlite"),
        (["rnu", "spec.toml"], "Did you mean 'run'? See `flanders --help`."),
        (["run", "spec.toml", "--divice", "cpu"], "unrecognized arguments: --divice cpu. Did you mean '--device'?"),
        (
            ["resume", "results.sqlite", "--out", "x"],
            "unrecognized arguments: --out x. See `flanders resume --help`.",
        ),
        (["leaderboard", "table", "--jsn"], "See `flanders leaderboard table --help`."),
        (["list", "guard"], "guard is one of the filters. `flanders list filters` shows it."),
        (["list", "attack"], "Did you mean 'attacks'?"),
        (["plot", "gone.sqlite", "--out", "figures", "--only", "accurcy"], "argument --only: invalid choice"),
        (["study", "window", "--rounds", "0"], "--rounds must be at least 1. Got 0 instead."),
        (["run"], "the following arguments are required: SPEC. See `flanders run --help`."),
        (["run", "spec.toml", "--jobs", "x"], "argument --jobs: 'x' is not a whole number."),
        (["study", "windw"], "Did you mean 'window'?"),
        ([], "the following arguments are required: COMMAND."),
        (["show", "gone.sqlite"], "There are no results at gone.sqlite"),
        (["show", "."], "flanders: . is a folder. Name the results file in it."),
        (["resume", "."], "flanders: . is a folder. Name the results file in it."),
        (["export", ".", "--csv", "csv"], "flanders: . is a folder. Name the results file in it."),
        (["show", "spec.toml"], "`flanders run spec.toml` carries out its runs."),
        (["export", "gone.sqlite", "--csv", "csv"], "There are no results at gone.sqlite"),
        (["watch", "."], "flanders: . is a folder. Name the results file in it."),
        (["watch", "spec.toml", "--text"], "spec.toml is a spec, not a results file"),
        (["watch", "gone.sqlite", "--host", "0.0.0.0"], "so a token is needed"),
        (
            ["watch", "gone.sqlite", "--host", "0.0.0.0", "--token-file", "gone"],
            "cannot be read from gone: No such file or directory.",
        ),
        (["watch", "gone.sqlite", "--port", "70000"], "a whole number from 0 to 65535"),
        (["watch", "gone.sqlite", "--once"], "--once needs --text"),
        (["watch", "gone.sqlite", "--text", "--once"], "There are no results at gone.sqlite"),
        (["watch", "gone.sqlite", "--text", "--port", "1"], "--text shows no page, so omit --port"),
    ],
)
def test_wrong_input_is_one_line_on_standard_error_and_exit_code_two(cli, tmp_path, arguments, problem):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("flanders: ")
    assert problem in err
    assert len(err.splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["spec.toml"]


def test_missing_data_is_found_before_anything_is_run(cli, tmp_path):
    code, _, err = cli("run", "spec.toml", "--set", "data.dataset=mnist", "--data-dir", tmp_path)
    assert code == 2
    assert f"No files of mnist were found in {tmp_path}. " in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["spec.toml"]


NO_DISK = "this system lets no test mount a small disk"


@pytest.mark.skipif(shutil.which("unshare") is None, reason=NO_DISK)
def test_a_full_disk_is_explained_and_nothing_is_lost(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "spec.toml").write_text(SPEC)
    flanders_ = f"{shlex.quote(sys.executable)} {shlex.quote(str(SCRIPT))}"
    script = f"""
        mount -t tmpfs -o size=12m tmpfs disk || exit 77
        head -c 12100k /dev/zero > disk/filler
        {flanders_} run spec.toml --out disk/results.sqlite --set federation.rounds=40; echo code $? >&2
        rm disk/filler
        {flanders_} resume disk/results.sqlite > /dev/null || exit 1
        cp disk/results.sqlite .
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(flanders.__file__).parents[1])}
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    if result.returncode == 77 or "unshare" in result.stderr:
        pytest.skip(NO_DISK)
    assert result.returncode == 0, result.stderr
    assert "flanders: The disk is full: disk/results.sqlite could not be written. Make room." in result.stderr
    assert "code 2" in result.stderr
    assert "Traceback" not in result.stderr
    assert [s["status"] for s in json.loads(shown(tmp_path / "results.sqlite"))] == ["done"] * 4


def shown(path):
    command = [sys.executable, "-m", "flanders", "show", str(path), "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_listed_with_parameters_and_a_description(cli, kind):
    code, out, _ = cli("list", kind, "--json")
    assert code == 0
    entries = json.loads(out)
    assert [entry["name"] for entry in entries] == list(registry(kind))
    assert all(entry["summary"].endswith((".", ")")) for entry in entries)
    code, out, _ = cli("list", kind)
    assert code == 0
    assert all(entry["name"] in out and entry["summary"] in out for entry in entries)


def test_the_list_shows_defaults(cli):
    _, out, _ = cli("list", "attacks")
    assert re.search(r"gauss +Add independent Gaussian noise.*\n +sigma=10.0", out)


def test_the_list_of_everything_has_families_and_one_line_for_each_entry(cli):
    _, out, _ = cli("list")
    lines = out.splitlines()
    for kind in KINDS:
        table = registry(kind)
        for name in table:
            assert len([line for line in lines if line.strip().startswith(f"{name} ")]) >= 1
            assert not table.family_of(name) or f"{table.family_of(name)}:" in lines
    assert max(map(len, lines)) <= 116
    assert "sigma=10.0" not in out


def test_what_is_not_installed_is_named_and_the_rest_is_listed(cli, monkeypatch):
    def without_torch(kind):
        if kind == "models":
            raise flanders.InputError("This needs torch")
        return registry(kind)

    monkeypatch.setattr(listing, "registry", without_torch)
    code, out, err = cli("list")
    assert code == 0
    assert "FILTERS\n" in out
    assert err == "models: This needs torch\n"
    assert cli("list", "models")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ["torch", "rich", "sklearn", "matplotlib", "scipy", "starlette", "flanders.experiments"]),
        (["--version"], ["torch", "rich", "sklearn", "matplotlib", "scipy", "flanders.experiments"]),
        (["list", "attacks"], ["torch", "sklearn"]),
        (["list", "filters"], ["torch", "sklearn"]),
        (["list", "aggregators"], ["torch", "sklearn"]),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(arguments, absent):
    code = (
        "import sys; from flanders.cli import main\n"
        f"try: main({arguments})\nexcept SystemExit: pass\n"
        f"print([m for m in {absent} if m in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr.strip() == "[]"


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"flanders {flanders.__version__}\n"


def test_show_has_the_runs_and_each_of_their_rounds(cli):
    cli("run", "spec.toml")
    code, out, _ = cli("show", "results.sqlite", "--json")
    assert code == 0
    runs = json.loads(out)
    assert {run["status"] for run in runs} == {"done"}
    code, out, _ = cli("show", "results.sqlite", runs[0]["id"][:6])
    assert code == 0
    assert out.splitlines()[0].startswith(f"{runs[0]['id']}  done, 6 rounds")
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("round "))
    assert [line.split()[0] for line in lines[at + 1 : at + 7]] == ["1", "2", "3", "4", "5", "6"]
    code, out, _ = cli("show", "results.sqlite", runs[0]["id"], "--json")
    assert [r["round"] for r in json.loads(out)["rounds"]] == [1, 2, 3, 4, 5, 6]
    code, _, err = cli("show", "results.sqlite", "xyz")
    assert code == 2
    assert "no run whose id begins with 'xyz'" in err
    assert "4 runs" in cli("show", "results.sqlite", "")[2]


def test_export_names_the_files_it_has_written(cli, tmp_path):
    cli("run", "spec.toml")
    code, out, _ = cli("export", "results.sqlite", "--csv", "tables")
    assert code == 0
    assert out.splitlines() == ["tables/run.csv", "tables/round.csv", "tables/client.csv"]
    assert len((tmp_path / "tables" / "client.csv").read_text().splitlines()) == 1 + 4 * 6 * 8


@pytest.mark.parametrize(
    ("results", "arguments"),
    [
        ("r.sqlite", ["report", "r.sqlite", "--html", "r.sqlite"]),
        ("r.sqlite", ["report", "r.sqlite", "--html", "./r.sqlite"]),
        ("r.html", ["report", "r.html"]),
        ("tables/run.csv", ["export", "tables/run.csv", "--csv", "tables"]),
        ("figures/accuracy.svg", ["plot", "figures/accuracy.svg", "--out", "figures", "--format", "svg"]),
    ],
)
def test_no_command_overwrites_results(cli, tmp_path, results, arguments):
    path = tmp_path / results
    path.parent.mkdir(exist_ok=True)
    assert cli("run", "spec.toml", "--set", "federation.seed=0", "--out", path)[0] == 0
    before = path.read_bytes()
    code, _, err = cli(*arguments)
    assert code == 2
    assert "holds results, which would be overwritten" in err
    assert path.read_bytes() == before


def test_a_report_in_a_folder_that_is_missing_is_refused_as_a_run_is(cli, tmp_path):
    cli("run", "spec.toml", "--set", "federation.seed=0")
    code, _, err = cli("report", "results.sqlite", "--html", "gone/a.html")
    assert code == 2
    assert f"gone/a.html cannot be written: there is no folder {tmp_path / 'gone'}" in err
    assert not (tmp_path / "gone").exists()
    assert cli("plot", "results.sqlite", "--out", "made/for/it", "--format", "svg")[0] == 0


def test_report_and_plot_hand_over_to_the_report(cli, monkeypatch):
    asked = []
    monkeypatch.setattr(commands, "write_html", lambda *args: asked.append(args))
    monkeypatch.setattr(commands, "write_figures", lambda *args: asked.append(args) or [Path(args[1]) / "a.svg"])
    assert cli("report", "r.sqlite")[1] == "r.html\n"
    assert cli("report", "r.sqlite", "--html", "x.html")[1] == "x.html\n"
    asked_for = ("--only", "time-by-phase", "--where", "seed=0")
    assert cli("plot", "r.sqlite", "--out", "figures", "--format", "svg", *asked_for)[1] == "figures/a.svg\n"
    assert [tuple(map(str, args)) for args in asked] == [
        ("r.sqlite", "r.html"),
        ("r.sqlite", "x.html"),
        ("r.sqlite", "figures", "svg", "['time_by_phase']", "['seed=0']"),
    ]


def test_watch_prints_the_rounds_as_a_log(cli):
    cli("run", "spec.toml")
    code, out, err = cli("watch", "results.sqlite", "--text", "--once")
    assert (code, err) == (0, "")
    assert "round  accuracy    kept  dropped" in out
    assert max(map(len, out.splitlines())) <= 80


def test_watch_serves_a_page_until_it_is_interrupted(tmp_path):
    command = [sys.executable, "-m", "flanders", "watch", str(tmp_path / "later.sqlite"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}api/results", timeout=300) as answer:
            assert "There are no results" in json.load(answer)["problem"]
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        (["run", "spec.toml"], "flanders.experiments.execution", "sim"),
        (["study", "window"], "flanders.studies.report", "studies"),
        (["schema"], "flanders.experiments.json_schema", "sim"),
        (["watch", "results.sqlite"], "flanders.watch.server", "watch"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(cli, monkeypatch, arguments, module, extra):
    def without(name, *rest):
        if name == module:
            raise ModuleNotFoundError("No module named 'absent'", name="absent.inner")
        return imported(name, *rest)

    imported = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without)
    code, _, err = cli(*arguments)
    assert code == 2
    assert f"This needs absent, which is not installed. Install it with: pip install 'flanders-fl[{extra}]'." in err


A_ROUND = rb"acc\. 0\.\d{3}, kept 8"


def drain(terminal, seen, gate):
    """Read what is written to a terminal until it is closed; open the gate once there is a line for a round."""
    try:
        while piece := os.read(terminal, 10_000):
            seen += piece
            if re.search(A_ROUND, seen):
                gate.touch()
    except OSError:  # Linux's way of saying so
        pass


def test_in_a_terminal_there_is_a_bar_for_the_grid_and_a_line_for_the_round(monkeypatch, cli, tmp_path):
    master, slave = pty.openpty()
    for name, value in (("COLUMNS", "160"), ("TERM", "xterm"), ("FAKE_GATE", str(tmp_path / "gate"))):
        monkeypatch.setenv(name, value)
    seen = bytearray()
    reader = threading.Thread(target=drain, args=(master, seen, tmp_path / "gate"))
    reader.start()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        code, _, _ = cli("run", "spec.toml", "--set", "federation.seed=[13, 1]", "--set", "filter.name=keep-all")
        monkeypatch.undo()
    reader.join()
    os.close(master)
    assert re.search(A_ROUND, seen)
    seen = seen.decode()
    assert code == 1
    assert "runs" in seen
    assert "2/2" in seen
    assert "failed: ArithmeticError" in seen


def test_in_a_pipe_progress_is_a_line_a_run(capsys):
    with watching(3, 1, {}) as notify:
        assert notify.ended == 1
    assert capsys.readouterr().err == ""


def test_a_table_in_a_terminal_shows_brackets_as_they_are(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    show.print_table([["[0, 1]"]], ["seeds"])
    assert "[0, 1]" in capsys.readouterr().out


def test_every_attack_and_filter_can_be_named_in_a_spec(cli):
    names = json.dumps(list(ATTACKS))
    code, out, err = cli("run", "spec.toml", "--dry-run", "--set", f"threat.attack={names}")
    assert code == 0, err
    assert len(out.splitlines()) == 4 * len(ATTACKS)
    filters = [{"name": name, "keep": "m-b"} for name in FILTERS if "keep" in FILTERS.describe(name).parameters]
    text = ", ".join(f"{{name = '{f['name']}', keep = 'm-b'}}" for f in filters)
    examples = ("--set", "server.examples=10")  # some filters need them
    code, out, err = cli("run", "spec.toml", "--dry-run", "--set", f"filter.name=[{text}]", *examples)
    assert code == 0, err
    assert len(out.splitlines()) == 2 * len(filters)


def test_a_run_tells_its_rounds_to_callbacks_and_a_wrong_one_is_refused(cli, tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    code, _, err = cli("run", "spec.toml", "--callback", f"tensorboard={tmp_path / 'board'}")
    assert code == 0, err
    assert len(list((tmp_path / "board").glob("*/events.out.tfevents.*"))) == 4
    code, _, err = cli("run", "spec.toml", "--callback", "tensorboad")
    assert code == 2
    assert "Did you mean 'tensorboard'?" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("columns", ["80", "160"])
def test_the_runs_of_a_grid_fit_into_a_narrow_terminal(cli, monkeypatch, columns):
    cli("run", "spec.toml")
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    _, out, _ = cli("show", "results.sqlite")
    out = re.sub(r"\x1b\[[\d;]*m", "", out)  # colours take no room
    assert max(map(len, out.splitlines())) <= int(columns)
    assert ("All runs: " in out) == (columns == "80")
    assert all(word in out for word in ("keep-all", "done", "6/6"))


def test_progress_in_a_pipe_has_short_names_and_the_time_that_is_left(cli, monkeypatch):
    clock = itertools.count()  # a second passes each time that somebody looks
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    _, _, err = cli("run", "spec.toml")
    first, *_, last = err.splitlines()
    assert re.fullmatch(r"\[1/4\] gauss 0\.25, [\w-]+, seed \d: done, accuracy 0\.\d{3}; about \d+ s left", first)
    assert last.startswith("[4/4] ")
    assert "left" not in last
    assert max(map(len, err.splitlines())) <= 80


def test_a_message_about_a_hostile_file_has_no_control_characters(tmp_path, capsys):
    file = tmp_path / "results.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE run (id)")
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET name = char(27) || '[31m', sql = 'CREATE NONSENSE'")
        connection.commit()
    assert main(["show", str(file)]) == 2
    printed = capsys.readouterr().err
    assert "not a readable results file" in printed
    assert "\x1b" not in printed


def test_a_number_that_no_float_holds_is_a_mistake_in_the_spec(tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text(f"[training]\nlearning_rate = {10**400}\n", encoding="utf-8")
    assert main(["run", str(spec), "--dry-run"]) == 2
    assert "learning_rate is too large" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "table", "report", "resume", "watch --text --once", "audit verify"])
def test_a_path_that_the_system_refuses_gives_a_message(cli, command):
    first, *options = command.split()
    words = [first, "a" * 300, *options] if first != "audit" else [first, *options, "a" * 300]
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"flanders: a+…a+(\.html)? cannot be used: File name too long. Choose another .*\.\n", err)


@pytest.mark.parametrize("path", ["", ".", "/", ".."])
def test_a_report_of_a_folder_gives_a_message(cli, path):
    code, _, err = cli("report", path)
    assert code == 2
    assert "is a folder. Name the results file in it." in err


@pytest.mark.parametrize("words", ["reproduce all --dry-run", "study alpha"])
def test_more_seeds_than_fit_into_memory_give_a_message(cli, words):
    code, _, err = cli(*words.split(), "--seeds", "9" * 30)
    assert code == 2
    assert "argument --seeds: 99999999999999999999 seeds are too many. Give a number up to 10,000." in err

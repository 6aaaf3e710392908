"""Pages of documentation as scripts: all blocks of code of a page, run from top to bottom.

`python` runs. `toml` is a spec, and is saved if its first line names a file. `sh` is a list of commands: those of
flanders run if their files are there, and the others have to exist. `json` is read. `text` is for what a program
prints. A block that is indented and not fenced is `sh` if it begins with a command, else `text`.
"""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from flanders.choices import KINDS
from flanders.cli import main
from flanders.cli.parser import make_parser
from flanders.experiments.spec import parse_spec
from flanders.leaderboard.entrants import parse_entrants

ROOT = Path(__file__).parents[1]
LANGUAGES = {"python", "toml", "sh", "json", "text"}
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)(?:    \S.*\n(?:\n(?=    \S))?)+")
THREAT = {"attack": "lie", "fraction": 0.2}
"""A spec that keeps `m-b` clients needs an attacker."""
SMALLER = ["--set=federation.rounds=3", "--set=federation.num_clients=20", "--set=federation.seed=0"]
"""What makes the experiments of a page short."""
READING = ("show", "table", "export", "report", "plot")
"""Commands that read a results file and end."""


def run_page(page: Path, namespace: dict) -> None:
    """Run all blocks of a page, one after the other, in the working directory."""
    for number, (language, code) in enumerate(blocks_of(page.read_text()), start=1):
        where = f"{page.name}, block {number}"
        if language == "python":
            run_python(code, namespace, where)
        elif language == "toml":
            check_toml(code)
        elif language == "json":
            json.loads(code)
        elif language == "sh":
            for line in code.replace("\\\n", " ").splitlines():
                run_command(line, page.parent)


def blocks_of(text: str) -> list[tuple[str, str]]:
    """Return the language and the code of each block of a page, in their order."""
    blocks = [(found.start(), found[1], found[2]) for found in FENCE.finditer(text)]
    prose = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)  # the rest keeps its place
    for found in INDENTED.finditer(prose):
        language = "sh" if found[0].split()[0] in COMMANDS else "text"
        blocks.append((found.start(), language, re.sub(r"^    ", "", found[0], flags=re.MULTILINE)))
    return [(language, code) for _, language, code in sorted(blocks)]


def run_python(code: str, namespace: dict, where: str) -> None:
    if ">>> " not in code:
        exec(compile(code, where, "exec"), namespace)
        return
    examples = doctest.DocTestParser().get_doctest(code, namespace, where, where, 0)
    examples.globs = namespace  # not a copy: the next block goes on from here
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    told: list[str] = []
    assert runner.run(examples, out=told.append, clear_globs=False).failed == 0, "".join(told)


def check_toml(code: str) -> None:
    """Check a spec, and save it if its first line is the name of a file."""
    values = tomllib.loads(code)
    if name := re.match(r"# (\S+\.toml)\n", code):
        Path(name[1]).write_text(code)
    if "project" in values:  # of a package with parts of its own
        assert {group.removeprefix("flanders.") for group in values["project"]["entry-points"]} <= set(KINDS)
    elif "defence" in values:  # of the leaderboard
        assert parse_entrants(values, "page")
    else:
        assert parse_spec({"threat": THREAT, **values} if "filter" in values else values)


def run_command(line: str, folder: Path) -> None:
    """Run a command of flanders on the files that the page has made. Of any other, check that it exists."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] in COMMANDS:
        COMMANDS[words[0]](words, folder)
    else:
        here = str(Path(sys.executable).parent)
        assert shutil.which(words[0]) or shutil.which(words[0], path=here), f"nothing checks {line!r}"


def flanders(words: list[str], folder: Path) -> None:
    arguments = words[1:]
    make_parser().parse(arguments)
    places = enumerate(arguments)
    files = [word for i, word in places if word.endswith((".toml", ".sqlite")) and arguments[i - 1] != "--out"]
    here = files and all(Path(file).exists() for file in files)
    options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    if arguments[0] in ("list", "schema") or (here and arguments[0] in READING):
        assert main(arguments) == 0, words
    elif here and arguments[0] == "run" and options <= {"--out", "--jobs", "--dry-run", "--set"}:
        assert main([*without(arguments, "--jobs"), *SMALLER]) == 0, words


def without(arguments: list[str], option: str) -> list[str]:
    """Leave out an option and its value."""
    return [word for i, word in enumerate(arguments) if option not in (word, arguments[i - 1])]


def pip(words: list[str], folder: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [name for word in words for group in re.findall(r"\[(.*?)\]", word) for name in group.split(",")]
    assert set(named) <= set(extras), words


def make(words: list[str], folder: Path) -> None:
    assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words


def python(words: list[str], folder: Path) -> None:
    if words[1] == "-m":
        assert importlib.util.find_spec(words[2]) is not None, words  # it exists; importing it may take long
    elif words[1] != "-c":
        assert (ROOT / words[1]).exists(), words


def flwr(words: list[str], folder: Path) -> None:
    """Check the keys of the run config of the example app."""
    app = tomllib.loads((ROOT / "examples" / "flower-app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    if "-c" in words:
        assert set(re.findall(r"([\w-]+)=", words[words.index("-c") + 1])) <= set(app["config"]), words


def script(words: list[str], folder: Path) -> None:
    names = re.findall(r"\./(\w+\.sh)", " ".join(words))
    assert names
    assert all((folder / name).exists() for name in names), words


def nothing(words: list[str], folder: Path) -> None:
    """Commands of a shell or of other programs, which say what they do."""


COMMANDS: dict[str, Callable[[list[str], Path], None]] = {
    "flanders": flanders,
    "pip": pip,
    "make": make,
    "python": python,
    "flwr": flwr,
    "for": script,
    **{f"./{name}.sh": script for name in ("certificates", "keys", "superlink", "register", "supernode", "stop")},
    **dict.fromkeys(
        [
            *("cd", "export", "source", "git", "apt-get", "curl", "docker", "systemctl"),
            *("flower-supernode", "flower-superlink", "ray", "srun", "sbatch"),
            *("tensorboard", "mlflow", "nvflare"),
        ],
        nothing,
    ),
}

"""The target `specs`: hostile specs of experiments, as files and as `--set` options."""

from __future__ import annotations

from pathlib import Path

from hardening.choices import TEXTS, Choices, damaged
from hardening.targets.commands import run_command
from hardening.targets.target import Target

SECTIONS = {
    "data": ("dataset", "partition", "alpha", "data_dir"),
    "model": ("name", "hidden"),
    "training": ("learning_rate", "epochs", "batch_size", "optimizer", "local_steps"),
    "federation": ("num_clients", "rounds", "seed", "clients_per_round"),
    "threat": ("attack", "fraction", "start", "data_poison", "sigma"),
    "filter": ("name", "keep", "window", "threshold"),
    "aggregator": ("name", "num_malicious", "preaggregators", "trim"),
    "fallback": ("name",),
    "run": ("device", "threads", "chunk"),
}
NAMES = (
    "digits",
    "synthetic",
    "mlp2",
    "gauss",
    "lie",
    "flanders",
    "guard",
    "fedavg",
    "krum",
    "nnm",
    "none",
    "m-b",
    "b",
)


class Specs(Target):
    """Dry runs of hostile specs."""

    name = "specs"

    def prepare(self, folder: Path) -> None:
        """Read the example specs of this repository, which the cases damage."""
        super().prepare(folder)
        root = Path(__file__).parents[2]
        self.examples = [path.read_bytes() for path in sorted((root / "examples").glob("*.toml"))]

    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """List the runs of a hostile spec, without running them."""
        path = self.folder / "hostile.toml"
        path.write_bytes(hostile_spec(choices, self.examples) if replay is None else replay)
        command = ["run", str(path), "--dry-run", "--out", str(self.folder / "hostile.sqlite")]
        while choices.chance(30):
            section = choices.pick(list(SECTIONS))
            key = choices.pick(SECTIONS[section])
            text = choices.pick(
                (f"{section}.{key}={toml(choices)}", f"{section}={toml(choices)}", toml(choices), "a.b=1")
            )
            command += ["--set", text.replace("\0", "")]
        run_command(command)
        return 1


def hostile_spec(choices: Choices, examples: list[bytes]) -> bytes:
    """Return a spec with hostile values."""
    kind = choices.below(4)
    if kind == 0:
        return damaged(choices.pick(examples), choices)
    if kind == 1:
        return choices.pick(
            (b"[" * 5000, b"a=" + b"[" * 50_000, b"\xff\xfe", b"a." * 3000 + b"b=1", b"a={b=" * 3000, b"")
        )
    lines = []
    for section, keys in SECTIONS.items():
        if choices.chance(50):
            lines.append(f"[{section}]")
            lines += [f"{key} = {toml(choices)}" for key in keys if choices.chance(40)]
        elif choices.chance(5):
            lines.insert(0, f"{section} = {toml(choices)}")
    return "\n".join(lines).encode("utf-8", "replace")


def toml(choices: Choices, depth: int = 3) -> str:
    """Return a hostile value as TOML text."""
    kind = choices.below(10 if depth else 7)
    if kind <= 2:
        return f'"{choices.pick(NAMES)}"'
    if kind == 3:
        return choices.pick(("0", "1", "-1", "0.5", "2", "1e308", "nan", "inf", "9223372036854775807", "1" * 400))
    if kind == 4:
        return choices.pick(("true", "false", "1979-05-27", "07:32:00", "[]", "{}", "0xff", '""'))
    if kind == 5:
        return '"' + str(choices.pick(TEXTS))[:200].translate(ESCAPES) + '"'
    if kind == 6:
        return "[" * 60 + "]" * 60 if choices.chance(20) else "[[1]]"
    if kind == 7:
        return f"[{', '.join(toml(choices, depth - 1) for _ in range(choices.below(4)))}]"
    if kind == 8:
        return "[" + ", ".join(map(str, range(choices.pick((2, 40))))) + "]"
    inner = ", ".join(f"{key} = {toml(choices, depth - 1)}" for key in ("name", "keep", "x") if choices.chance(60))
    return f"{{ {inner} }}"


ESCAPES = {number: f"\\u{number:04x}" for number in (*range(32), ord('"'), ord("\\"), 127)}

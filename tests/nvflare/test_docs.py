"""The guide to NVFLARE and the example's page: their code runs, and their commands have these options."""

from __future__ import annotations

import re
from pathlib import Path

from torch import nn

ROOT = Path(__file__).parents[2]
GUIDE, PAGE = ROOT / "docs" / "nvflare.md", ROOT / "examples/nvflare/README.md"
PAGES = ("nvflare.md", "examples/nvflare/README.md")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)


def test_every_block_of_python_in_the_guide_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.py").write_text("")
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names = {"Net": Net}
    for block in blocks:
        exec(block, names)
    assert len(blocks) >= 3
    assert type(names["recipe"].aggregator) is type(names["aggregator"])


def test_the_options_on_the_page_are_those_of_the_job() -> None:
    known = set(re.findall(r'"(--[a-z-]+)"', (PAGE.parent / "job.py").read_text()))
    assert set(re.findall(r"(?<=[ `])--[a-z-]+", PAGE.read_text())) <= known

"""The pictures of the documentation can be drawn again, by the scripts beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

import arrays
import deciding
import leaderboard
from flanders.leaderboard.tabling import published_rows

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


def test_every_picture_of_a_page_is_there_and_every_picture_is_on_a_page():
    docs = FIGURES.parent
    text = "\n".join(page.read_text() for page in [docs.parent / "README.md", *docs.rglob("*.md")])
    drawn = {path.name for path in FIGURES.iterdir() if path.suffix in (".svg", ".png")}
    assert {name for name in drawn if f"figures/{name}" not in text} == set()


def test_the_picture_of_the_arrays_is_of_the_code_on_its_page(tmp_path):
    arrays.main(tmp_path)
    found = arrays.run_page()
    assert len(found["errors"]) == len(found["plain_errors"]) == 20
    (axes,) = arrays.draw(found).axes
    assert [text.get_text() for text in axes.texts][1:] == ["protected: 0.25", "not protected: 0.95"]
    assert "<svg" in (tmp_path / "tutorial-arrays.svg").read_text()


@pytest.mark.slow
def test_the_pictures_of_how_filters_decide_show_what_the_page_says(tmp_path):
    deciding.main(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in FIGURES.glob("deciding-*.svg")}


def test_the_tables_of_the_leaderboard_are_those_of_its_rows(tmp_path):
    page = leaderboard.PAGE.read_text()
    assert leaderboard.with_tables(page, leaderboard.tables(published_rows())) == page
    copy = tmp_path / "leaderboard.md"
    copy.write_text(page)
    leaderboard.main(tmp_path, copy)
    assert copy.read_text() == page
    assert (tmp_path / "leaderboard.svg").read_text() == (FIGURES / "leaderboard.svg").read_text()

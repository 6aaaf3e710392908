from __future__ import annotations

import sys

import pytest

from flanders.checks import InputError
from flanders.report import write_figures

FIVE = ["accuracy", "precision_recall", "score_distributions", "scores_heatmap", "time_by_phase"]
STARTS = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}


@pytest.mark.parametrize("format_", STARTS)
def test_five_figures_are_written_in_each_format(results, tmp_path, format_):
    written = write_figures(results, tmp_path / "new" / "figures", format_)
    assert sorted(path.stem for path in written) == FIVE
    assert all(path.read_bytes().startswith(STARTS[format_]) for path in written)


def test_fonts_travel_with_a_pdf(results, tmp_path):
    for path in write_figures(results, tmp_path, "pdf"):
        assert b"/FontFile2" in path.read_bytes()  # TrueType, as journals ask
        assert b"/Type3" not in path.read_bytes()


def test_the_same_results_give_the_same_bytes(results, tmp_path):
    first = [path.read_bytes() for path in write_figures(results, tmp_path / "a", "svg")]
    assert [path.read_bytes() for path in write_figures(results, tmp_path / "b", "svg")] == first


def test_an_unknown_figure_is_an_error_with_a_guess(results, tmp_path):
    with pytest.raises(InputError, match="Did you mean 'accuracy'"):
        write_figures(results, tmp_path, only=["acuracy"])


def test_an_unknown_format_is_an_error_with_a_guess(results, tmp_path):
    with pytest.raises(InputError, match="Did you mean 'pdf'"):
        write_figures(results, tmp_path, "pdff")


def test_without_matplotlib_the_error_names_the_extra(results, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "flanders.report.plots", raising=False)
    monkeypatch.delattr("flanders.report.plots", raising=False)
    with pytest.raises(InputError, match=r"flanders-fl\[report\]"):
        write_figures(results, tmp_path, "pdf")


def test_several_settings_have_a_folder_each_and_seeds_share_one(write, make_spec, make_rounds, tmp_path, rng):
    attacks = [
        {"attack": {"name": name}, "fraction": share}
        for name, share in (("lie", 0.2), ("lie", 0.8), ("gauss", 0.8))
    ]
    runs = [
        (make_spec(**attack, seed=seed), make_rounds(rng, clients=6, rounds=2 + seed, filtered=False), "done")
        for attack in attacks
        for seed in (0, 1)
    ]
    path = write(tmp_path / "grid.sqlite", runs)
    assert write_figures(path, tmp_path / "all", "svg") == [tmp_path / "all" / "grid.svg"]
    written = write_figures(path, tmp_path / "some", "svg", ["accuracy", "time_by_phase"])
    assert {path.parent.name for path in written} == {"lie-20", "lie-80", "gauss-80"}
    assert len(written) == 6
    written = write_figures(path, tmp_path / "one", "svg", wheres=["attack=lie", "r=0.8"])
    assert sorted(path.relative_to(tmp_path / "one").as_posix() for path in written) == [f"{n}.svg" for n in FIVE]


def test_two_filters_have_their_own_heat_maps(write, make_spec, make_rounds, tmp_path, rng):
    lie = {"name": "lie"}
    runs = [
        (make_spec(attack=lie, filter={"name": name}), make_rounds(rng, clients=6, rounds=3), "done")
        for name in ("flanders", "dnc")
    ]
    written = write_figures(write(tmp_path / "two.sqlite", runs), tmp_path, "svg")
    names = {path.stem for path in written}
    assert {"scores_heatmap-flanders", "scores_heatmap-dnc"} <= names


def test_no_two_lines_of_a_figure_look_alike_and_none_like_the_attack_free_one():
    from flanders.report.plots import DASHES, SERIES

    looks = {(SERIES[n % len(SERIES)], DASHES[n % len(DASHES)]) for n in range(35)}
    assert len(looks) == 35
    assert "black" not in SERIES


def test_both_sides_of_the_score_distributions_have_a_scale(results):
    from flanders.report import plots
    from flanders.report.compared_runs import ComparedRuns
    from flanders.report.run_reading import read_results

    compared = ComparedRuns(read_results(results))
    found = dict(plots.draw_figures(compared, range(len(compared.runs)), ["score_distributions"]))
    (ax,) = found["score_distributions"].axes
    low, high = ax.get_ylim()
    assert low == -high
    ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert min(ticks) < 0 < max(ticks)


def test_a_folder_that_cannot_be_made_is_explained(results, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_figures(results, tmp_path / "file" / "figures", "svg")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_figure_is_not_written_through_a_planted_link(results, tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "accuracy.svg").symlink_to(tmp_path / "precious")
    write_figures(results, tmp_path / "figures", "svg", only=["accuracy"])
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "figures" / "accuracy.svg").read_bytes().startswith(STARTS["svg"])

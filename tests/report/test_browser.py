"""The page in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.report import write_html
from flanders.report.run_reading import read_results

LIE = {"name": "lie"}


@pytest.fixture
def report(results, tmp_path):
    write_html(results, tmp_path / "report.html")
    return tmp_path / "report.html"


def names(page):
    return page.locator("#runs tbody td.name").all_inner_texts()


def open_run(page, label):
    """Go from the overview to a run, by its name in the table of runs."""
    page.locator("#runs td.name a", has_text=label).first.click()
    page.locator("#view-run").wait_for()


def fits(page, width):
    return page.evaluate("document.documentElement.scrollWidth") <= width


SMALL = (
    "[...document.querySelectorAll('body *')].filter(e => e.childElementCount === 0 && e.textContent.trim() && "
    "e.getClientRects().length && parseFloat(getComputedStyle(e).fontSize) < 11).length"
)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens_without_errors_or_requests_and_fits(report, open_page, width, scheme):
    page, problems = open_page(report, width, scheme)
    assert page.locator(".grid a.cell").count() == 3
    assert fits(page, width)
    assert page.evaluate(SMALL) == 0
    open_run(page, "flanders + fedavg · lie 80%")
    assert page.locator("#lines svg path.series").count() == 2
    assert page.locator("#lines svg path.free").count() == 1
    assert page.locator("#heat canvas.cells").is_visible()
    assert page.locator("#rounds svg path").count() >= 2
    assert page.locator("#scores svg rect").count() > 3
    assert page.locator("#time .bar").count() == 2
    assert fits(page, width)
    assert page.evaluate(SMALL) == 0
    page.locator("#clients tbody a").first.click()
    assert page.locator("#client-scores svg circle").count() > 1
    assert page.locator("#history tbody tr").count() == 6
    assert fits(page, width)
    assert page.evaluate(SMALL) == 0
    assert not problems


def test_the_way_leads_from_the_overview_to_a_cell_to_a_client_to_the_reason(report, open_page, results):
    page, problems = open_page(report, 1280)
    run = read_results(results)[2]
    assert page.title() == "results.sqlite – flanders report"
    cell = page.locator(".grid tbody tr", has_text="lie 80%").locator("a.cell").nth(1)
    assert cell.locator("b").inner_text() == f"{100 * run.accuracy[-1]:.1f}".removesuffix(".0") + "%"
    cell.click()
    assert page.title() == "flanders + fedavg, lie 80% · results.sqlite – flanders report"
    worst = int(run.not_kept.argmax())
    row = page.locator("#clients tbody tr").first
    assert row.locator("th").inner_text() == str(worst)
    assert f"dropped in {run.not_kept[worst]} of 6 rounds" in row.inner_text()
    assert "the largest score of a kept client" in row.locator(".why").inner_text()
    row.locator("a").click()
    assert page.locator("#heading").inner_text() == f"Client {worst}"
    assert page.title() == f"Client {worst} · results.sqlite – flanders report"
    assert "dropped" in page.locator("#client-reasons").inner_text()
    last = page.locator("#history tbody tr").first
    assert ("dropped" in last.inner_text()) == (not run.kept[worst, -1])
    page.go_back()
    assert page.locator("#view-run").is_visible()
    page.locator("#crumbs a", has_text="Overview").click()
    assert page.locator("#view-overview").is_visible()
    assert not problems


def test_the_overview_has_the_mean_over_seeds_and_a_cell_leads_to_each_of_them(
    write, make_spec, make_rounds, rng, tmp_path, open_page
):
    runs = [(make_spec(attack=LIE, seed=s), make_rounds(rng, clients=5, rounds=3), "done") for s in (0, 1)]
    runs.append((make_spec(seed=0), make_rounds(rng, clients=5, rounds=2, malicious=0), "running"))
    results = write(tmp_path / "seeds.sqlite", runs)
    write_html(results, tmp_path / "seeds.html")
    page, problems = open_page(tmp_path / "seeds.html", 1280)
    found = read_results(results)
    accuracies = [run.accuracy[-1] for run in found]
    cells = page.locator(".grid a.cell").all_inner_texts()
    mean = f"{50 * (accuracies[0] + accuracies[1]):.1f}".removesuffix(".0")
    assert cells[0].startswith(f"{mean}%")
    assert " to " in cells[0]
    assert "so far" in cells[1]
    page.locator(".grid a.cell").first.click()
    assert page.locator("#seeds a").all_inner_texts() == ["seed 0", "seed 1"]
    page.locator("#seeds a").nth(1).click()
    assert page.locator("#seeds a[aria-current]").inner_text() == "seed 1"
    assert "seed 1" in page.locator("#summary").inner_text()
    assert not problems


def test_all_defences_are_drawn_or_the_page_says_how_many_are_not(
    write, make_spec, make_rounds, rng, tmp_path, open_page
):
    filters = [{"name": "flanders", "keep": keep} for keep in range(10, 21)]
    runs = [(make_spec(attack=LIE, filter=f), make_rounds(rng, clients=4, rounds=2), "done") for f in filters]
    write_html(write(tmp_path / "many.sqlite", runs), tmp_path / "many.html")
    page, problems = open_page(tmp_path / "many.html", 1280)
    page.locator(".grid a.cell").last.click()
    assert page.locator("#lines svg path.series").count() == 8
    assert "8 of the 11 defences" in page.locator("#lines-lede").inner_text()
    assert page.locator("#lines svg path.chosen").count() == 1
    assert not problems


def test_the_first_round_with_an_attack_is_marked(write, make_spec, make_rounds, rng, tmp_path, open_page):
    spec = make_spec(attack=LIE)
    spec["threat"]["start"] = 3
    write_html(
        write(tmp_path / "start.sqlite", [(spec, make_rounds(rng, clients=5, rounds=5), "done")]),
        tmp_path / "s.html",
    )
    page, problems = open_page(tmp_path / "s.html", 1280)
    for chart in ("#lines", "#rounds"):
        assert page.locator(f"{chart} text.start-name").text_content() == "attack from round 3"
    assert page.locator("#heat .begin").count() == 1
    assert "attack from round 3" in page.locator("#heat-legend").inner_text()
    assert not problems


HOSTILE = ["<img src=x onerror=alert(1)>", "node-\u202e-evil", "</script><script>alert(2)</script>", "x" * 400]


def test_names_and_reasons_of_hostile_clients_are_only_text(write, make_spec, tmp_path, open_page):
    clients = (
        ClientRecord("ann", Fate.KEPT),
        *(ClientRecord(id_, Fate.DROPPED, 9.0, reason=id_) for id_ in HOSTILE),
    )
    rounds = [RoundRecord(n, clients, note=HOSTILE[0]) for n in (1, 2, 3)]
    path = write(tmp_path / "hostile.sqlite", [(make_spec(), rounds, "running")])
    write_html(path, tmp_path / "hostile.html")
    page, problems = open_page(tmp_path / "hostile.html", 390)
    assert fits(page, 390)
    assert page.locator("#alarms").is_visible()
    for i in range(len(HOSTILE)):
        page.locator("#clients tbody a").nth(i).click()
        assert page.locator("#history tbody tr").count() == 3
        assert fits(page, 390)
        page.go_back()
    assert page.locator("img").count() == 0
    assert "\u202e" not in page.locator("body").inner_text()
    assert not problems


def test_names_that_end_alike_are_told_apart(write, make_spec, make_rounds, rng, tmp_path, open_page):
    ids = ["federation-a-node-00001", "federation-b-node-00001", 7, "7"]
    rounds = [RoundRecord(1, tuple(ClientRecord(id_, Fate.DROPPED, float(i)) for i, id_ in enumerate(ids)))]
    write_html(write(tmp_path / "alike.sqlite", [(make_spec(), rounds, "done")]), tmp_path / "alike.html")
    page, problems = open_page(tmp_path / "alike.html", 1280)
    shown = page.locator("#clients tbody th").all_inner_texts()
    assert len(set(shown)) == 4
    assert {*ids[:2], "7"} <= set(shown)
    assert not problems


def test_long_numbers_of_nodes_are_not_rounded(write, make_spec, tmp_path, open_page):
    ids = [2**62 + 1, 2**62 + 2]
    rounds = [
        RoundRecord(n, (ClientRecord("ann", Fate.KEPT), *(ClientRecord(i, Fate.DROPPED) for i in ids)))
        for n in (1, 2, 3)
    ]
    write_html(write(tmp_path / "nodes.sqlite", [(make_spec(), rounds, "running")]), tmp_path / "nodes.html")
    page, problems = open_page(tmp_path / "nodes.html", 1280)
    assert page.locator("#clients tbody th").all_inner_texts() == [*map(str, ids), "ann"]
    page.locator("#alarms a", has_text=str(ids[1])).click()
    assert page.locator("#heading").inner_text() == f"Client {ids[1]}"
    assert page.locator("#history tbody tr").count() == 3
    assert not problems


def test_touch_reads_a_cell_and_opens_its_client(report, open_page, results):
    page, problems = open_page(report, 390, touch=True)
    run = read_results(results)[2]
    page.locator(".grid a.cell").last.tap()
    page.select_option("#heat-order", "id")
    canvas = page.locator("#heat canvas.cells")
    canvas.scroll_into_view_if_needed()
    wide = (page.locator("#heat").evaluate("e => e.clientWidth") - 48) / 6
    canvas.tap(position={"x": 44 + 2.5 * wide, "y": 3.5 * 24})
    assert "Client 3, round 3" in page.locator("#tip").inner_text()
    assert ("reason" in page.locator("#tip").inner_text()) == (not run.kept[3, 2])
    page.locator("#heat-title").tap()
    assert page.locator("#tip").is_hidden()
    page.locator("#heat-readout a").tap()
    assert page.locator("#heading").inner_text() == "Client 3"
    assert not problems


def test_clients_can_be_found_by_name_and_reason_and_sorted(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    assert page.locator("#clients tbody tr").count() == 20
    page.fill("#clients-filter", "no such client")
    assert "No client matches" in page.locator("#clients").inner_text()
    page.fill("#clients-filter", "SCORE")
    assert page.locator("#clients tbody tr").count() > 3
    page.fill("#clients-filter", "")
    page.select_option("#clients-order", "id")
    assert page.locator("#clients tbody th").all_inner_texts() == [str(i) for i in range(20)]
    assert not problems


def test_text_stands_out_from_its_background(report, open_page):
    for scheme in ("light", "dark"):
        page, _ = open_page(report, 1280, scheme)
        ratios = page.evaluate("""() => {
            const light = (hex) => { const c = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
                .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
                return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; };
            const css = (name) => light(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
            const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            const both = (n) => Math.min(ratio(css(n), css('--card')), ratio(css(n), css('--page')));
            return { text: ['--ink', '--soft', '--accent'].map(both),
                lines: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => ratio(css('--s' + i), css('--card'))) };
        }""")
        assert min(ratios["text"]) >= 4.5
        assert min(ratios["lines"]) >= 3


def test_the_table_sorts_by_mouse_and_by_keyboard(report, open_page):
    page, _ = open_page(report, 1280)
    header = page.locator('#runs th[data-key="final"]')
    given = names(page)
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert names(page)[-1] == "fedavg · lie 80%"
    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert names(page)[0] == "fedavg · lie 80%"
    page.locator('#runs th[data-key="label"] button').click()
    assert names(page) == sorted(given)
    page.locator('#runs th[data-key="precision"] button').click()
    assert names(page)[0] == "flanders + fedavg · lie 80%"  # runs without a precision come last


def test_the_table_filters_by_all_words(report, open_page):
    page, problems = open_page(report, 1280)
    page.fill("#filter", "LIE flanders")
    assert names(page) == ["flanders + fedavg · lie 80%"]
    assert page.locator("#matches").inner_text() == "1 of 3 runs"
    page.fill("#filter", "nothing like it")
    assert "No run matches" in page.locator("#runs tbody").inner_text()
    page.fill("#filter", "")
    assert len(names(page)) == 3
    assert not problems


def test_another_run_can_be_chosen_and_others_compared(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    page.select_option("#run", "1")
    expect(page.locator("#heat-lede")).to_contain_text("No filter judged")
    expect(page.locator("#scores-card")).to_be_hidden()
    page.locator("#runs tbody td.name a").first.click()
    expect(page.locator("#run")).to_have_value("0")
    expect(page.locator("#lines-lede")).to_contain_text("attack-free")
    page.locator("#next").click()
    page.locator("#runs tbody input").first.check()
    expect(page.locator("#lines svg path.series")).to_have_count(3)
    page.get_by_role("button", name="Loss").click()
    expect(page.locator("#lines-title")).to_have_text("Loss over rounds")
    assert not problems


def test_pointing_at_a_cell_tells_its_client_round_and_score(report, open_page, results):
    page, problems = open_page(report, 1280)
    run = read_results(results)[2]
    open_run(page, "flanders + fedavg · lie 80%")
    page.select_option("#heat-order", "id")
    wide = min(48, (page.locator("#heat").evaluate("e => e.clientWidth") - 48) / 6)
    page.locator("#heat canvas.cells").hover(position={"x": 44 + 2.5 * wide, "y": 3.5 * 24})
    words = page.locator("#tip").inner_text()
    assert "Client 3, round 3" in words
    assert f"score\n{run.score[3, 2]:.4g}" in words
    assert ("sent poison\nyes" in words) == bool(run.malicious[3, 2])
    assert ("fate\nkept" in words) == bool(run.kept[3, 2])
    assert ("reason\nscore" in words) == (not run.kept[3, 2])
    assert "probability of malice" in words
    page.mouse.down()
    page.mouse.up()
    assert page.locator("#round-name").inner_text() == "round 3"
    page.locator("#heat canvas.cells").focus()
    page.keyboard.press("ArrowDown")
    assert "Client 4, round 3" in page.locator("#heat-readout").inner_text()
    page.keyboard.press("Enter")
    assert page.locator("#heading").inner_text() == "Client 4"
    assert not problems


def test_a_round_can_be_picked_for_the_distributions(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    assert "median of these thresholds" in page.locator("#scores-lede").inner_text()
    page.locator("#round").focus()
    page.keyboard.press("Home")
    assert "Nobody was scored in round 1" in page.locator("#scores").inner_text()
    page.keyboard.press("ArrowRight")
    assert "largest score of a kept client" in page.locator("#scores-lede").inner_text()
    page.locator("#all-rounds").click()
    assert page.locator("#round-name").inner_text() == ""
    assert not problems


def test_the_names_of_the_groups_stand_out_from_the_bars_behind_them(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    label = page.locator("#scores text", has_text="malicious (")
    halo = label.evaluate("text => getComputedStyle(text).stroke")
    assert halo == page.locator("#scores-card").evaluate("card => getComputedStyle(card).backgroundColor")
    assert not problems


def test_the_page_follows_the_window(report, open_page):
    page, problems = open_page(report, 1280)
    open_run(page, "flanders + fedavg · lie 80%")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function("document.querySelector('#lines svg').viewBox.baseVal.width < 390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not problems

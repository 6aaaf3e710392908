from __future__ import annotations

from benchmarks import layers


def test_the_filter_finds_more_if_it_knows_the_layers(capsys):
    assert layers.main(["--clients", "20", "--attacks", "sign-flip", "--seeds", "1", "--rounds", "4"]) == 0
    _, known, unknown = (line.split() for line in capsys.readouterr().out.splitlines())
    assert known[:3] == ["20", "sign-flip", "with"]
    assert unknown[2] == "without"
    assert float(known[3]) > float(unknown[3])


def test_a_federation_without_clients_is_refused_in_one_line(capsys):
    assert layers.main(["--clients", "0"]) == 2
    assert capsys.readouterr().err.startswith("layers: The `num_clients` parameter")

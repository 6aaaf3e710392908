from __future__ import annotations

import numpy as np

from flanders.filters.fingerprint.explanation import name_layers

LAYERS = {"a": 3, "b": 1000, "c": 1}


def test_only_layers_with_an_unusual_part_of_the_deviation_are_named():
    usual = np.array([[90.0, 5.0, 5.0], [80.0, 10.0, 10.0], [1.0, 98.0, 1.0]])
    squares = np.array([[90.0, 5.0, 5.0], [10.0, 50.0, 40.0], [70.0, 30.0, 0.0], [0.0, 0.0, 0.0]])
    assert name_layers(squares, usual, list(LAYERS)) == [
        "",
        "50% of the deviation in b (usually 10%), 40% of the deviation in c (usually 5%)",
        "30% of the deviation in b (usually 10%)",
        "",
    ]

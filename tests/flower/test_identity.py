from __future__ import annotations

import re

import numpy as np
import pytest

from flanders import DistanceToGlobal, KeepAll
from flanders.flower import Ban, FilteredStrategy
from flower.federation import LocalGrid, Node, app, grid_of, model, play, strategies

START = model((6, 7))
KEYS = {100 + i: bytes([i]) * 32 for i in range(6)}


def loud(message, honest):
    for name, array in honest["arrays"].items():
        honest["arrays"][name] = app.Array((30 * array.numpy()).astype(np.float32))
    return app.Message(honest, reply_to=message)


class HidingGrid(LocalGrid):
    """Some nodes can be chosen and reply, but are missing from the list of nodes."""

    hidden: tuple[int, ...] = ()

    def get_nodes(self) -> list[Node]:
        return [node for node in super().get_nodes() if node.node_id not in self.hidden]


def test_a_node_that_hides_from_the_list_of_nodes_does_not_shake_off_its_ban() -> None:
    """It is sampled, and gone when the server asks who is who."""
    grid = grid_of(6, {2: loud}, HidingGrid, keys=KEYS)
    strategy = FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=5), ban=Ban(after=2, rounds=50))
    play(strategy, grid, START, 2)
    assert len(strategy._books.memory.bans.until) == 1
    grid.hidden = (102,)
    for number in range(3, 9):
        play(strategy, grid, START, 1, first=number)
        assert 102 not in grid.asked["train"][number]


def test_a_ban_survives_a_restart_though_the_node_hides(tmp_path) -> None:
    grid = grid_of(6, {2: loud}, HidingGrid, keys=KEYS)
    for rounds in (2, 5):
        strategy = FilteredStrategy(
            strategies.FedAvg(fraction_evaluate=0), DistanceToGlobal(keep=5), ban=Ban(2, 50), state_dir=tmp_path
        )
        strategy.start(grid, START, num_rounds=rounds)
        grid.hidden = (102,)
    assert all(102 not in grid.asked["train"][number] for number in (3, 4, 5))


def test_a_stranger_that_hides_is_not_asked(flower_log) -> None:
    grid = grid_of(6, {}, HidingGrid, keys=KEYS)
    grid.hidden = (102,)
    ((_, metrics),) = play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid, START, 1)
    assert metrics["flanders-kept"] == 5
    assert grid.asked["train"][1] == [node for node in grid.asked["train"][1] if node != 102]
    assert "node 102 is not asked: its client is unknown, and the node has left" in flower_log.text


def test_a_known_node_that_is_not_listed_for_a_moment_is_still_the_same_client() -> None:
    grid = grid_of(6, {}, HidingGrid, keys=KEYS)
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    play(strategy, grid, START, 1)
    before = strategy.last_round.ids
    grid.hidden = (102, 104)
    play(strategy, grid, START, 1, first=2)
    assert strategy.last_round.ids == before


def test_a_client_that_comes_back_on_another_node_does_not_end_the_run() -> None:
    """Its old node is chosen once more, but is not listed."""
    grid = grid_of(6, {}, HidingGrid, keys=KEYS)
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    play(strategy, grid, START, 1)
    grid.nodes[200], grid.keys[200] = grid.nodes[102], KEYS[102]
    grid.hidden = (102,)
    ((_, metrics),) = play(strategy, grid, START, 1, first=2)
    assert metrics["flanders-kept"] == 6
    assert 102 not in grid.asked["train"][2]


def test_two_nodes_of_one_name_cost_the_second_its_turn_and_nobody_else(flower_log) -> None:
    grid = grid_of(6, keys={**KEYS, 103: KEYS[102]})
    ((_, metrics),) = play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid, START, 1)
    assert metrics["flanders-kept"] == 5
    assert re.search("node 10[23] is not asked: `identify=` must give each node a name of its own", flower_log.text)


def test_a_node_that_nobody_can_name_is_not_asked(flower_log) -> None:
    def identify(node):
        return {100: "a", 101: "b", 102: None}[node.node_id]

    ((_, metrics),) = play(
        FilteredStrategy(strategies.FedAvg(), KeepAll(), identify=identify), grid_of(3), START, 1
    )
    assert metrics["flanders-kept"] == 2
    with pytest.raises(KeyError):
        play(FilteredStrategy(strategies.FedAvg(), KeepAll(), identify=lambda node: {}[1]), grid_of(3), START, 1)


def test_names_of_nodes_and_clients_do_not_control_the_terminal(flower_log) -> None:
    class Named(LocalGrid):
        def get_nodes(self):
            return [Node(id_, name=f"\x1b[2J\n{id_}" + "x" * 500) for id_ in self.nodes]

    grid = grid_of(4, {1: lambda message, honest: None}, kind=Named)
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), identify=lambda node: node.name)
    play(strategy, grid, START, 1)
    assert "is client" in flower_log.text
    assert "silent 101" in flower_log.text
    for record in flower_log.records:
        assert "\x1b" not in record.getMessage()
        assert "\n" not in record.getMessage()
        assert len(record.getMessage()) < 1000

"""The class `Experiment`: one run, with its setting and the engine that carries it out.

The setting describes the federation, its attacker and its defence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flanders.experiments.filling import Filler, as_table, tree_of
from flanders.results.run import Options, RunSpec
from flanders.results.spec_keys import SIMULATOR
from flanders.results.tree import Table
from flanders.simulation.setting import Setting, Threat

ENGINE, OPTIONS = "engine", "run"
"""The keys of the engine and of the options. The spec of a run in a results file has the fields of the run's
setting as keys, with two differences: it may also have the key `engine`, and it lacks the key `run`, which holds
the options."""


@dataclass(frozen=True)
class Experiment:
    """One run: what to simulate (`setting`), and what carries it out (`engine`).

    A user can describe the same run in several ways, e.g. with a number of clients or a fraction of them. All these
    descriptions have the same `canonical` form, and so the same `id`. In the canonical form, `clients_per_round` is
    a number of clients. If nobody attacks, the threat has its default values.
    """

    setting: Setting
    engine: str = SIMULATOR

    @cached_property
    def spec(self) -> RunSpec:
        """The run as the results file stores it."""
        setting = tree_of(canonical_setting(self.setting))
        tree = {key: value for key, value in setting.items() if key != OPTIONS}
        if self.engine != SIMULATOR:
            tree[ENGINE] = self.engine
        return RunSpec(tree, self.setting.run)

    @property
    def id(self) -> str:
        """The id of the run. It depends only on the canonical form."""
        return self.spec.id

    @property
    def canonical(self) -> Table:
        """The spec of the run as nested tables, with all defaults filled in."""
        return self.spec.canonical

    @property
    def options(self) -> Options:
        """How the run is carried out, e.g. on which device. Options do not change the id."""
        return self.setting.run

    def with_options(self, **changes: Any) -> Experiment:
        """Return the same run with some options changed."""
        return replace(self, setting=replace(self.setting, run=replace(self.options, **changes)))

    @classmethod
    def of(cls, spec: RunSpec) -> Experiment:
        """Return the run that a results file stores as `spec`."""
        tree = {key: value for key, value in spec.canonical.items() if key != ENGINE}
        setting = Filler().fill(Setting, as_table(tree, "run"), f"run {spec.id}: ")
        return cls(replace(setting, run=spec.options), str(spec.canonical.get(ENGINE, SIMULATOR)))


def canonical_setting(setting: Setting) -> Setting:
    """Return the canonical form of a setting; see `Experiment`."""
    federation = replace(setting.federation, clients_per_round=setting.federation.selected)
    threat = setting.threat
    if threat.fraction == 0:
        threat = replace(threat, attack=None)
    return replace(setting, federation=federation, threat=threat if threat.exists else Threat())

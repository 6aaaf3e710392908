"""One run as it is asked for: a setting, and the engine that carries it out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from flanders.experiments.filling import Filler, as_table, tree_of
from flanders.results.run import SIMULATOR, Options, RunSpec
from flanders.results.tree import Table
from flanders.simulation.setting import Setting, Threat

ENGINE, OPTIONS = "engine", "run"
"""Two keys of a spec that are not part of the setting's canonical form."""


@dataclass(frozen=True)
class Experiment:
    """One run: what it is (`setting`) and what carries it out (`engine`).

    Two settings that decide the same have the same `canonical` form and so the same `id`: the form names the number
    of selected clients, and it has no threat where nobody attacks.
    """

    setting: Setting
    engine: str = SIMULATOR

    @cached_property
    def spec(self) -> RunSpec:
        """The run as the results file keeps it."""
        tree = {key: value for key, value in tree_of(settled(self.setting)).items() if key != OPTIONS}
        if self.engine != SIMULATOR:
            tree[ENGINE] = self.engine
        return RunSpec(tree, self.setting.run)

    @property
    def id(self) -> str:
        """The name of the run, which follows from its canonical form."""
        return self.spec.id

    @property
    def canonical(self) -> Table:
        """The run as tables in tables, with all defaults filled in."""
        return self.spec.canonical

    @property
    def options(self) -> Options:
        """How the run is carried out."""
        return self.setting.run

    def carried_out(self, options: Options) -> Experiment:
        """Return the same run, carried out in another way."""
        return replace(self, setting=replace(self.setting, run=options))

    @classmethod
    def of(cls, spec: RunSpec) -> Experiment:
        """Read a run back from what the results file keeps."""
        tree = {key: value for key, value in spec.canonical.items() if key != ENGINE}
        setting = Filler().fill(Setting, as_table(tree, "run"), f"run {spec.id}: ")
        return cls(replace(setting, run=spec.options), str(spec.canonical.get(ENGINE, SIMULATOR)))


def settled(setting: Setting) -> Setting:
    """Return a setting that decides the same, in the one form that all such settings share."""
    federation = replace(setting.federation, clients_per_round=setting.federation.selected)
    threat = setting.threat
    if threat.fraction == 0:
        threat = replace(threat, attack=None)
    return replace(setting, federation=federation, threat=threat if threat.exists else Threat())

"""Settings for tests, written flat."""

from __future__ import annotations

import dataclasses
from typing import Any

from flanders.filters import KeepAll
from flanders.simulation import Data, Federation, Options, Setting, Threat

GROUPS = {"data": Data, "federation": Federation, "threat": Threat, "run": Options}


def make_setting(**fields: Any) -> Setting:
    """Return a setting of fields of any of its groups; without a filter it keeps everybody."""
    fields = {"filter": KeepAll(), **fields}
    groups = {}
    for name, group in GROUPS.items():
        own = {field.name for field in dataclasses.fields(group)} & fields.keys()
        groups[name] = group(**{key: fields.pop(key) for key in own})
    return Setting(**groups, **fields)


def changed(setting: Setting, **fields: Any) -> Setting:
    """Return a setting with other values for some fields of any of its groups."""
    for name, group in GROUPS.items():
        own = {field.name for field in dataclasses.fields(group)} & fields.keys()
        if own:
            part = dataclasses.replace(getattr(setting, name), **{key: fields.pop(key) for key in own})
            setting = dataclasses.replace(setting, **{name: part})
    return dataclasses.replace(setting, **fields)

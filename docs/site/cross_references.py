"""Links from the names in docstrings to the places that describe them."""

from __future__ import annotations

from typing import Any

from docutils import nodes


def resolve_public_name(app: Any, env: Any, node: Any, contnode: nodes.Node) -> nodes.Node | None:
    """Return a link for a name without its module, e.g. `Guard`, if exactly one documented object has this name."""
    if node.get("refdomain") != "py":
        return None
    name = node["reftarget"].removesuffix("()").rsplit("(", 1)[0]
    domain = env.get_domain("py")
    found = [path for path in domain.objects if path == name or path.endswith(f".{name}")]
    classes = [path for path in found if domain.objects[path].objtype in ("class", "exception", "function", "data")]
    chosen = classes if len(classes) == 1 else found
    if len(chosen) != 1:
        return None
    entry = domain.objects[chosen[0]]
    refnode = nodes.reference("", "", internal=True)
    refnode["refuri"] = app.builder.get_relative_uri(node["refdoc"], entry.docname) + "#" + entry.node_id
    refnode += contnode
    return refnode

"""Nodes that run a ClientApp in this process."""

from __future__ import annotations

import numpy as np

from flower.federation import app


def nodes_running(client_app, num_nodes, run_config=None, *, broken=()):
    """Return nodes for a `LocalGrid`, with ids in no order; node i holds partition i.

    A node whose partition is among the `broken` replies to training with an error.
    """

    def node(client, context):
        def reply(message):
            if client in broken and message.metadata.message_type == "train":
                return app.Message(app.Error(code=2, reason="out of memory"), reply_to=message)
            return client_app(message, context)

        return reply

    nodes = {}
    for client, id_ in enumerate(np.random.default_rng(0).integers(1, 2**40, num_nodes).tolist()):
        node_config = {"partition-id": client, "num-partitions": num_nodes}
        nodes[id_] = node(client, app.Context(0, id_, node_config, app.RecordDict(), run_config or {}))
    return nodes

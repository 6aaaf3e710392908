"""A SuperNode that does not keep to the protocol. It takes the place of Flower's command `flower-supernode`.

    HOSTILE=twice python -m hardening.hostile_supernode ...      # it sends each reply twice
    HOSTILE=forged python -m hardening.hostile_supernode ...     # it sends replies under the id of another node

A ClientApp cannot do either: its SuperNode sends one reply to a message, and under its own id.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flwr.supernode import fleet_http_client
from flwr.supernode.cli import flower_supernode

Push = Callable[[Any, Any], Any]
"""Sends a request with replies to the SuperLink."""
OTHER = 12345
"""The id of a node that is not this one."""


def twice(push: Push) -> Push:
    """Send each reply twice. What comes of the second one does not matter to this node."""

    def push_twice(client: Any, request: Any) -> Any:
        answer = push(client, request)
        try:
            push(client, request)
            print("hostile: the second reply was taken", flush=True)
        except Exception as error:  # the SuperLink may refuse it in any way
            print(f"hostile: the second reply was refused: {error}", flush=True)
        return answer

    return push_twice


def forged(push: Push) -> Push:
    """Send each reply under the id of another node."""

    def push_forged(client: Any, request: Any) -> Any:
        for message in request.messages_list:
            message.metadata.src_node_id = OTHER
        try:
            answer = push(client, request)
            print("hostile: the forged reply was taken", flush=True)
        except Exception as error:
            print(f"hostile: the forged reply was refused: {error}", flush=True)
            raise
        return answer

    return push_forged


KINDS = {"twice": twice, "forged": forged}


def main() -> None:
    """Change how replies are sent, then start the SuperNode."""
    client: Any = fleet_http_client.FleetHttpClient
    client.PushMessages = KINDS[os.environ["HOSTILE"]](client.PushMessages)
    flower_supernode()


if __name__ == "__main__":
    main()

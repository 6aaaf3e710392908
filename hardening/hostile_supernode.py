"""A hostile SuperNode, which breaks Flower's protocol. It replaces Flower's command `flower-supernode`.

    HOSTILE=twice python -m hardening.hostile_supernode ...      # sends each reply twice
    HOSTILE=forged python -m hardening.hostile_supernode ...     # sends replies under the id of another node

A hostile ClientApp alone cannot do this, since an honest SuperNode sends one reply to each message, under its own
id.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flwr.supernode import fleet_http_client
from flwr.supernode.cli import flower_supernode

Push = Callable[[Any, Any], Any]
"""A method that sends a request with replies to the SuperLink."""
OTHER = 12345
"""The id of another node."""


def twice(push: Push) -> Push:
    """Return a method that sends each reply twice. The node ignores an error of the second one."""

    def push_twice(client: Any, request: Any) -> Any:
        answer = push(client, request)
        try:
            push(client, request)
            print("hostile: the second reply was taken", flush=True)
        except Exception as error:  # the SuperLink may refuse it with any error
            print(f"hostile: the second reply was refused: {error}", flush=True)
        return answer

    return push_twice


def forged(push: Push) -> Push:
    """Return a method that sends each reply under the id of another node."""

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

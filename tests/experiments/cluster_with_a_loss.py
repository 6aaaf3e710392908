"""Carry out a grid on a Ray cluster of three nodes on this machine, and kill one of them half-way.

Arguments: the spec, the results file, and the number of runs after which the node is killed.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from flanders.cli import main

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}


def count_runs(path: Path, status: str) -> int:
    if not path.exists():
        return 0
    connection = sqlite3.connect(path, timeout=30)
    try:
        return connection.execute("SELECT count(*) FROM run WHERE status = ?", (status,)).fetchone()[0]
    except sqlite3.OperationalError:  # the tables are not there yet
        return 0
    finally:
        connection.close()


def carry_out(spec: Path, results: Path, runs: int) -> int:
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    doomed = [cluster.add_node(**NODE) for _ in range(2)][1]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    over = threading.Event()

    def kill_when_due() -> None:
        while not over.wait(0.05):
            if count_runs(results, "done") >= runs:
                cluster.remove_node(doomed, allow_graceful=False)
                return

    thread = threading.Thread(target=kill_when_due)
    thread.start()
    try:
        return main(["run", str(spec), "--out", str(results), "--on", "ray"])
    finally:
        over.set()
        thread.join()
        print("alive:", sum(node["Alive"] for node in ray.nodes()))
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(carry_out(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))

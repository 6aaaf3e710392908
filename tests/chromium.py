"""Chromium for the tests of the report: found here, or installed by `python tests/chromium.py`; it asks nobody."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

from playwright.sync_api import Error, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
MISSING = "the browser tests found no Chromium; `apt-get install chromium` or `playwright install chromium` gets it"
PATIENCE = 300_000
"""Milliseconds that a page may take for anything. Only a page that hangs takes as long."""
NET = 180
"""Seconds that all downloads together may take."""


def launch(playwright: Any) -> Any:
    """Start the system's Chromium or Chrome, else Playwright's own; return None if none starts."""
    found = [{"executable_path": path} for path in map(shutil.which, NAMES) if path]
    for which in (*found, {"channel": "chrome"}, {}):
        try:
            return playwright.chromium.launch(args=QUIET, timeout=120_000, **which)
        except Error:  # it is not there, or stands for one that is yet to be installed
            continue
    return None


def starts() -> bool:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        if browser is not None:
            browser.close()
    return browser is not None


def install() -> None:
    """Install Debian's as root, else Playwright's own; fail silently: then the tests say that they are skipped."""
    end = time.monotonic() + NET

    def succeeds(*command: str, limited: bool = True) -> bool:
        process = subprocess.Popen(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(max(1.0, end - time.monotonic()) if limited else None) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if limited and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
                process.wait()

    if os.geteuid() == 0 and shutil.which("apt-get"):
        apt = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=60")
        package = ("install", "-y", "--no-install-recommends", "chromium")
        if (
            succeeds(*apt, "update")
            and succeeds(*apt, *package, "--download-only")
            and succeeds(*apt, *package, "--no-download", limited=False)  # nobody stops it half-way
            and starts()
        ):
            return
    succeeds(sys.executable, "-m", "playwright", "install", "chromium")


if __name__ == "__main__" and not starts():
    print("Installing Chromium for the browser tests.", flush=True)
    install()

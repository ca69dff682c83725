"""Headless Chromium, driven through Debian's chromedriver, which always has the browser's own version.

As a command it prints, in one line, what the browser tests need and cannot get here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import filelock
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from phoebi_lib import workspace

AXE = "axe-core@4.14.1"
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    # nothing but this machine can be reached, whatever a page asks for
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


class Missing(Exception):
    """Something that the browser tests need is not here; the message says what, and how to get it."""


def programs() -> tuple[str, str]:
    """Return the paths of the browser and of its driver. Raises Missing."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not (browser and driver):
        raise Missing("no chromium and chromedriver here; on Debian: apt-get install chromium chromium-driver")
    return browser, driver


def start(profile: Path) -> webdriver.Chrome:
    """Start a browser with an empty profile in ``profile``, which records its console and its requests."""
    browser, driver = programs()
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    # a slow machine may still be loading the browser's own page for new tabs, which is full of requests
    chrome.get("about:blank")
    return chrome


def emulate(driver: webdriver.Chrome, width: int, height: int, scheme: str) -> None:
    """Give the page a window of ``width`` x ``height`` CSS pixels (a phone's below 600) and a colour scheme."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def requests(driver: webdriver.Chrome) -> tuple[list[str], list[str]]:
    """Return the addresses that were asked for since the last call, and those that failed, each with the reason."""
    asked, failed = {}, []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        what, facts = message["method"], message["params"]
        if what == "Network.requestWillBeSent":
            asked[facts["requestId"]] = facts["request"]["url"]
        elif what == "Network.loadingFailed" and not facts.get("canceled"):
            failed.append(f"{asked.get(facts['requestId'], '?')}: {facts['errorText']}")
        elif what == "Network.responseReceived" and facts["response"]["status"] >= 400:
            failed.append(f"{facts['response']['url']}: {facts['response']['status']}")
    return list(asked.values()), failed


def axe_source() -> str:
    """Return axe-core's script, fetched once from the npm registry into ``build/``. Raises Missing."""
    name, _, version = AXE.partition("@")
    kept = workspace.project() / "build" / f"{name}-{version}.min.js"
    kept.parent.mkdir(exist_ok=True)
    # several processes test side by side
    with filelock.FileLock(kept.with_suffix(".lock")):
        if not kept.is_file():
            _fetch(name, version, kept)
    return kept.read_text()


def _fetch(name: str, version: str, kept: Path) -> None:
    if not shutil.which("npm"):
        raise Missing(f"no npm here for {AXE}; on Debian: apt-get install npm, or put its axe.min.js at {kept}")
    with workspace.atomic_path(kept) as temporary:
        try:
            command = ["npm", "pack", AXE, "--silent", "--pack-destination", str(kept.parent)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            archive = kept.parent / f"{name}-{version}.tgz"
            with tarfile.open(archive) as package:
                temporary.write_bytes(package.extractfile("package/axe.min.js").read())
            archive.unlink()
        except (OSError, subprocess.SubprocessError, KeyError, tarfile.TarError) as error:
            said = " ".join((getattr(error, "stderr", "") or "").split())
            raise Missing(f"{AXE} cannot be had from the npm registry: {error} {said}; where there is no network, "
                          f"put its axe.min.js at {kept}") from error  # fmt: skip


def missing() -> str:
    """Return what is needed and cannot be had, in one line; "" where everything is here."""
    for needed in (programs, axe_source):
        try:
            needed()
        except Missing as error:
            return str(error)
    return ""


if __name__ == "__main__":
    print(missing())

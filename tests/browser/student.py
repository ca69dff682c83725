"""A JupyterLab server of its own, and the few things that a student does in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import chromium
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from phoebi_lib import workspace

_SETTINGS = {
    # every cell is in the page, not only those in sight
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
_READY = """const done = arguments[0]; (async () => {
  await jupyterapp.restored;
  const opened = () => [...jupyterapp.shell.widgets("main")].find((widget) => widget.sessionContext);
  while (!opened()) await new Promise((next) => setTimeout(next, 100));
  const panel = opened();
  await panel.revealed; await panel.sessionContext.ready;
  // commands go to the panel that has the focus
  while (jupyterapp.shell.currentWidget !== panel) {
    jupyterapp.shell.activateById(panel.id);
    await new Promise((next) => setTimeout(next, 100));
  }
})().then(() => done(""), (error) => done(String(error)));"""
_COMMAND = "const [id, done] = arguments; jupyterapp.commands.execute(id).then(() => done(''), (e) => done(String(e)));"
_PASTE = """const [editor, text] = arguments; const data = new DataTransfer(); data.setData("text/plain", text);
editor.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));"""


@contextmanager
def serve(folder: Path, private: Path) -> Iterator[dict]:
    """Serve ``folder`` on a free port of 127.0.0.1; yield the server's address and token.

    Settings, kernels' files and logs lie in ``private``: nothing of the user's is read or changed.
    """
    for name, values in _SETTINGS.items():
        path = private / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    places = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTER_DATA_DIR": "share",
              "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
              "IPYTHONDIR": "ipython"}  # fmt: skip
    environment = {**os.environ, **{name: str(private / place) for name, place in places.items()}}
    environment["PHOEBI_PROJECT"] = str(workspace.project())
    options = ("--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0",
               f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True",
               "--LabApp.extension_manager=readonly")  # fmt: skip
    log = private / "server.log"
    with log.open("w") as stream:
        server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], env=environment, stdout=stream,
                                  stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
    try:
        yield _address(server, private / "runtime", log)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def _address(server: subprocess.Popen, runtime: Path, log: Path) -> dict:
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            facts = json.loads(path.read_text() or "{}")
            if facts.get("port"):
                return facts
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def open_notebook(driver, server: dict, name: str) -> None:
    """Open a notebook and wait for its kernel."""
    chromium.emulate(driver, 1280, 900, "light")
    # selenium must wait for its driver longer than the driver for the page, or its error says nothing of the page
    driver.set_script_timeout(300)
    driver.command_executor.client_config.timeout = 330
    # a window without a screen may never get the focus
    driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
    driver.get(f"{server['url']}doc/tree/{name}?token={server['token']}")
    WebDriverWait(driver, 60).until(lambda d: d.execute_script("return Boolean(window.jupyterapp)"))
    _check(driver.execute_async_script(_READY))


def run_all(driver) -> None:
    """Run all cells, from the first to the last or to the first error."""
    _check(driver.execute_async_script(_COMMAND, "notebook:run-all-cells"))


def cell(driver, index: int):
    """Return the element of a cell, counted over all cells from 0."""
    return driver.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-Cell")[index]


def output(driver, index: int) -> str:
    """Return the text of a cell's outputs."""
    return "\n".join(area.text for area in cell(driver, index).find_elements(By.CSS_SELECTOR, ".jp-Cell-outputArea"))


def run(driver, index: int) -> None:
    """Run one cell with Shift+Enter."""
    _focus(driver, index)
    ActionChains(driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()


def write(driver, index: int, text: str) -> None:
    """Replace what a cell holds, as by selecting all of it and pasting."""
    editor = _focus(driver, index)
    ActionChains(driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).perform()
    driver.execute_script(_PASTE, editor, text)


def _focus(driver, index: int):
    editor = cell(driver, index).find_element(By.CSS_SELECTOR, ".cm-content")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", editor)
    return editor


def _check(error: str) -> None:
    if error:
        raise RuntimeError(f"JupyterLab: {error}")

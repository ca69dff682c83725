"""One browser for all tests of a process, and the pages that it opens."""

import chromium
import pytest


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    driver = chromium.start(tmp_path_factory.mktemp("chromium"))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def axe():
    return chromium.axe_source()

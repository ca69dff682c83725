"""Running a notebook's kernel without the two faults that hang or kill it (see the book's page on how it is built)."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from nbclient.output_widget import OutputWidget


class IpcKernelManager(AsyncKernelManager):
    """A kernel manager that talks over a file socket of its own.

    Two kernels that start at once may pick the same TCP port, and one then dies; a fresh folder for each cannot clash.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._folder = tempfile.mkdtemp(prefix="phoebi-kernel-")
        self.transport = "ipc"
        self.ip = f"{self._folder}/k"

    async def cleanup_resources(self, restart: bool = False) -> None:
        """Remove the sockets' folder once the kernel is gone for good."""
        await super().cleanup_resources(restart=restart)
        if not restart:
            shutil.rmtree(self._folder, ignore_errors=True)


def patch_output_widgets() -> None:
    """Stop nbclient's stand-in Output widget from sending on a channel that another task waits on.

    Cells that capture widget output could otherwise hang for ever; the outputs themselves are kept.
    """
    OutputWidget.sync_state = lambda self: None

"""The torch device of a computation, checked before anything is put on it."""

from __future__ import annotations

import torch

from phoebi_lib import workspace


def checked_device(named: str | None = None) -> torch.device:
    """Return the torch device of that name; without a name the one that ``PHOEBI_DEVICE`` names, else the CPU.

    Raises:
        ValueError: torch has no such device on this machine; the name and where it comes from are given.
    """
    name = named or workspace.device()
    try:
        device = torch.device(name)
        # a number there and back: a device may be known to torch and yet be none of this machine
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, TypeError) as error:
        where = f"device={name!r}" if named else f"PHOEBI_DEVICE={name!r}"
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{where}: no such torch device here ({reason}); set PHOEBI_DEVICE, or device=, to cpu or to one that "
            "torch finds, such as cuda"
        ) from error
    return device

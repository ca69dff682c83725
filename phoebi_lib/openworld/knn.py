"""Exact nearest-neighbour search by cosine, in blocks, so that a bank of any size fits (Appendix D.2)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from phoebi_lib.decoders.checks import NORM_TOLERANCE, check_number

QUERY_BLOCK, BANK_BLOCK = 2048, 8192
_GROUP = 32


class Rows(Protocol):
    """What a bank must offer: an array, a memory map, or anything with a shape (M, D) that gives rows by slice."""

    shape: tuple[int, int]

    def __getitem__(self, rows: slice) -> np.ndarray: ...


def kth_cosine(queries: np.ndarray, bank: Rows, k: int, **search: object) -> np.ndarray:
    """Return for each query the ``k``-th largest cosine to the rows of ``bank``, (Q,) float32.

    Arguments and errors as :func:`largest_cosines`; ValueError too where the bank holds fewer than ``k`` rows.
    """
    if isinstance(k, int) and k > bank.shape[0]:
        raise ValueError(f"k-NN: the bank holds {bank.shape[0]} tiles, so there is no neighbour number {k}; lower k")
    return largest_cosines(queries, bank, k, **search).min(axis=1)


@torch.inference_mode()
def largest_cosines(
    queries: np.ndarray,
    bank: Rows,
    k: int,
    *,
    query_block: int = QUERY_BLOCK,
    bank_block: int = BANK_BLOCK,
    device: str = "cpu",
) -> np.ndarray:
    """Return for each query the ``k`` largest cosines to the rows of ``bank``, (Q, min(k, M)) float32, in no order.

    The search is exact: every pair is looked at. Equal rows of the bank count as often as they occur. At most
    ``query_block x bank_block`` cosines and one block of either side are held at a time, whatever Q and M are; the
    result does not depend on the blocks beyond float32 rounding (about 1e-7).

    Args:
        queries: (Q, D) floating point, unit norm.
        bank: (M, D) unit norm within 1e-3, see :class:`Rows`; it is read once per block of queries.
        k: how many neighbours, from 1 on.
        query_block, bank_block: rows per block.
        device: torch device of the search.

    Raises:
        ValueError: shapes do not fit or are empty, ``k`` or a block is not an integer from 1 on, or a row of the bank
            is not finite or not of unit norm.
    """
    if len(bank.shape) != 2 or queries.ndim != 2 or bank.shape[1] != queries.shape[1]:
        raise ValueError(
            f"queries (Q, D) and bank (M, D) must agree in D; found shapes {queries.shape} and {tuple(bank.shape)}"
        )
    for name, value in (("k", k), ("query_block", query_block), ("bank_block", bank_block)):
        check_number("k-NN", name, value, 1, integer=True)
    size = bank.shape[0]
    if not size or not len(queries):
        raise ValueError(f"k-NN: needs a query and a bank tile; found {len(queries)} queries and {size} tiles")
    found = np.empty((len(queries), min(k, size)), dtype=np.float32)
    # one buffer for all blocks: fresh memory of this size costs a page fault every 4 KB
    buffer = torch.empty(min(query_block, len(queries)) * min(bank_block, size), device=device)
    for start in range(0, len(queries), query_block):
        stop = min(start + query_block, len(queries))
        block = _tensor(queries[start:stop], device)
        best = block.new_empty(len(block), 0)
        for first in range(0, size, bank_block):
            rows = _tensor(bank[first : min(first + bank_block, size)], device)
            if start == 0:
                _check_bank(rows, first)
            cosines = buffer[: len(block) * len(rows)].view(len(block), len(rows))
            if cosines.is_cpu:  # numpy's matrix product took 0.85 of the time of torch's here
                np.matmul(block.numpy(), rows.numpy().T, out=cosines.numpy())
            else:
                torch.mm(block, rows.T, out=cosines)
            best = _merged(best, cosines, k)
        found[start:stop] = best.cpu().numpy()
    return found


def _merged(best: torch.Tensor, cosines: torch.Tensor, k: int) -> torch.Tensor:
    """Return the ``k`` largest of each row of ``best`` and ``cosines`` together (fewer if there are fewer), unsorted.

    Columns of ``cosines`` are taken in groups, of which only the maxima are sorted. The k largest values lie within the
    k groups whose maxima are largest: were one outside, each of those groups would hold a value at least as large. And
    a row whose maxima do not exceed the k values that it has already is done.
    """
    n_groups, rest = divmod(cosines.shape[1], _GROUP)
    if rest or n_groups <= 2 * k:
        both = torch.cat([best, cosines], dim=1)
        return both.topk(min(k, both.shape[1]), sorted=False).values
    whole = cosines.unflatten(1, (_GROUP, n_groups))
    maxima = whole.amax(dim=1)
    if best.shape[1] < k:
        best = torch.nn.functional.pad(best, (0, k - best.shape[1]), value=-torch.inf)
    rows = (maxima.amax(dim=1) > best.amin(dim=1)).nonzero()[:, 0]
    groups = maxima[rows].topk(k, sorted=False).indices
    chosen = whole[rows[:, None], :, groups].flatten(1)
    best[rows] = torch.cat([best[rows], chosen], dim=1).topk(k, sorted=False).values
    return best


def _tensor(rows: np.ndarray, device: str) -> torch.Tensor:
    # the copy makes a block of a read-only memory map writable, which torch wants
    return torch.from_numpy(np.array(rows, dtype=np.float32)).to(device)


def _check_bank(rows: torch.Tensor, first: int) -> None:
    norms = rows.norm(dim=1)
    bad = ~((norms - 1.0).abs() <= NORM_TOLERANCE)
    if bad.any():
        row = int(bad.nonzero()[0, 0])
        raise ValueError(
            f"k-NN: every tile of the bank must have unit norm within {NORM_TOLERANCE}, but bank[{first + row}] has "
            f"norm {float(norms[row]):.6g}; pass tiles of pool.X"
        )

"""Baselines under the same contract and protocol as the decoders."""

from phoebi_lib.baselines.all_present import AllPresent

__all__ = ["AllPresent"]

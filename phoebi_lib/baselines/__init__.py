"""Baselines under the same contract and protocol as the decoders."""

from phoebi_lib.baselines.all_present import AllPresent
from phoebi_lib.baselines.attention_mil import AttentionMIL
from phoebi_lib.baselines.linear_probe import LinearProbe

__all__ = ["AllPresent", "AttentionMIL", "LinearProbe"]

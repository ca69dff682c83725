"""The three decoders of the paper (Section 4): small read-outs of frozen tile features."""

from phoebi_lib.decoders.base import Decoder
from phoebi_lib.decoders.channel_group import ChannelGroup
from phoebi_lib.decoders.proto_match import ProtoMatch
from phoebi_lib.decoders.simplex_unmix import SimplexUnmix, sparsemax, sparsemax_jacobian

__all__ = ["ChannelGroup", "Decoder", "ProtoMatch", "SimplexUnmix", "sparsemax", "sparsemax_jacobian"]

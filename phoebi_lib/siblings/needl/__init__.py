"""NEEDL-Bench: stomata and pseudothecia on Douglas-fir needles, found as points or boxes in tiles of 256 px."""

"""PHOEBI, the executable paper: which known species are in a phase-contrast picture, and is there a stranger?"""

__version__ = "0.1.0"

"""BioCLIP 2's biological visual evaluation: loaders, protocols on frozen features, and metrics.

Each data set lies in a folder of its own. A loader of :mod:`~phoebi_lib.siblings.bioeval.layout` takes that folder and
returns one row per image with its ``path``; a protocol takes such a table and the features indexed by path, as
``SiblingRun.features`` returns them, and returns one row per variant and metric.
"""

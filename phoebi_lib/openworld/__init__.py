"""Open world: is there a species outside the catalogue in this image, and what would its prototype be? (Section 5)"""

from phoebi_lib.openworld.discovery import propose
from phoebi_lib.openworld.scores import energy_score, knn_score, max_cosine_score, residual_score

__all__ = ["energy_score", "knn_score", "max_cosine_score", "propose", "residual_score"]

"""FungiTastic (arXiv 2408.13632): published layout, tasks, metrics and baselines, on frozen features."""

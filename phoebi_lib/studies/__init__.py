"""Computations that belong to one page of the book."""

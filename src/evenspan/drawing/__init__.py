"""Figures drawn once: for files, and for pages."""

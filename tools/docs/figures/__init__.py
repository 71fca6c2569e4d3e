"""Figures of the documents, each computed from results that are committed."""

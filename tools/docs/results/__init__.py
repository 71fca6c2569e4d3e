"""Writes today's figures into the documents, and says which of them are stale."""

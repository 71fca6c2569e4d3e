"""The small protocol that a measured project implements."""

"""Containers for measured code: no network, read-only, unprivileged."""

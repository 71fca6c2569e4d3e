"""Says whether every job a workflow needs succeeded: the one check to require."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("needs", metavar="JSON", help="the workflow's own ${{ toJSON(needs) }}")


def main(args: argparse.Namespace) -> int:
    """Exit 0 when all succeeded, 1 otherwise: a job that was skipped is no success."""
    try:
        results = {name: job["result"] for name, job in json.loads(args.needs).items()}
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ValueError(
            "expected the JSON of a workflow's needs: jobs, each with a result"
        ) from None
    for name, result in results.items():
        print(f"{result:<10} {name}")
    return 0 if results and set(results.values()) == {"success"} else 1

#!/usr/bin/env python3
"""The licence and source rules of deny.toml, for machines without cargo-deny. Needs no network.

Every crate must be usable under licences of the allow-list alone, and come from one registry or from this repository.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def satisfied(expression, allowed):
    """Whether an SPDX expression can be met from `allowed` ("A/B" is Cargo's old way to write "A OR B")."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def any_of():
        met = all_of()
        while tokens[:1] == ["OR"]:
            tokens.pop(0)
            met = all_of() or met
        return met

    def all_of():
        met = one()
        while tokens[:1] == ["AND"]:
            tokens.pop(0)
            met = one() and met
        return met

    def one():
        token = tokens.pop(0)
        if token == "(":
            met = any_of()
            if tokens.pop(0) != ")":
                raise ValueError
            return met
        if token in ("OR", "AND", "WITH", ")"):
            raise ValueError
        if tokens[:1] == ["WITH"]:
            token = f"{token} WITH {tokens[1]}"
            del tokens[:2]
        return token in allowed

    try:
        met = any_of()
        return met and not tokens
    except (ValueError, IndexError):
        return False  # not an expression at all, so nobody knows what it allows


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]
    exceptions = {entry["crate"]: set(entry["allow"]) for entry in rules.get("exceptions", [])}
    metadata = subprocess.run(
        ["cargo", "metadata", "--offline", "--locked", "--format-version", "1"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE,
    )
    packages = json.loads(metadata.stdout)["packages"]
    faults = []
    sources = set()
    for package in packages:
        name = f"{package['name']} {package['version']}"
        allowed = set(rules["allow"]) | exceptions.get(package["name"], set())
        licence = package["license"]
        if not licence:
            faults.append(f"{name}: names no licence")
        elif not satisfied(licence, allowed):
            faults.append(f"{name}: {licence} is not allowed")
        if package["source"]:
            sources.add(package["source"])
        elif not Path(package["manifest_path"]).is_relative_to(ROOT):
            faults.append(f"{name}: lies outside this repository")
    if len(sources) > 1 or any(not source.startswith(("registry+", "sparse+")) for source in sources):
        faults.append("not all from one registry: " + ", ".join(sorted(sources)))
    for fault in sorted(faults):
        print(f"licences: {fault}", file=sys.stderr)
    print(f"licences: {len(packages)} crates read, {len(faults)} faults (rules of deny.toml)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""`make fuzz`: the whole campaign, or one input of it."""

import argparse
import sys
import time
from collections import Counter, defaultdict

from fuzz.campaign import KINDS, Finding, campaign, counts, inputs_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=[*KINDS, ""], default="", help="only this kind of input")
    parser.add_argument("--input", default="", help="only the input with this number, and all about it")
    parser.add_argument("--inputs", type=int, default=10_000, help="of all kinds together")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    given = parser.parse_args()
    kinds = [given.kind] if given.kind else list(KINDS)
    wanted = {kind: list(range(inputs_of(kind, given.inputs))) for kind in kinds}
    if given.input:
        wanted = {kind: [int(given.input)] for kind in kinds}
    began = time.monotonic()

    def tell(finding: Finding) -> None:
        if finding.failure or given.input:
            print(describe(finding, given.seed), flush=True)

    findings = campaign(given.seed, wanted, given.jobs, tell)
    print(table(findings))
    print(f"{len(findings)} inputs, seed {given.seed}, in {time.monotonic() - began:.0f} seconds")
    failed = counts(findings)
    print(", ".join(f"{number} {failure}" for failure, number in failed.items()))
    return int(any(failed.values()))


def describe(finding: Finding, seed: int) -> str:
    return (
        f"{finding.failure.upper() or 'ok'}  {finding.kind}: {printable(finding.what)}\n"
        f"    {printable(finding.outcome)}\n"
        f"    replay: make fuzz SEED={seed} KIND={finding.kind} INPUT={finding.number}"
    )


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)[:700]


def table(findings: list[Finding]) -> str:
    """A line for each kind: how many inputs, what became of them, and how long the processor took."""
    by_kind: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_kind[finding.kind].append(finding)
    lines = [
        f"{'kind':16}{'inputs':>8}{'accepted':>10}{'refused':>10}{'failed':>8}{'ms each':>9}{'longest s':>11}"
    ]
    for kind, found in by_kind.items():
        outcomes = Counter("failed" if one.failure else one.outcome.split(":")[0] for one in found)
        mean = 1000 * sum(one.seconds for one in found) / len(found)
        longest = max(one.seconds for one in found)
        lines.append(
            f"{kind:16}{len(found):8}{outcomes['accepted']:10}{outcomes['refused']:10}"
            f"{outcomes['failed']:8}{mean:9.0f}{longest:11.1f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""`make fuzz`: libFuzzer (by atheris) over everything that reads files of others, for a while.

    python tests/fuzz/run.py                     all, a minute each
    python tests/fuzz/run.py onnx --seconds 600  one, longer

What fails (an exception that is not quaver's own, a crash, more than 10 s or 2 GB) is written to
tests/fuzz/found/, where `test_fuzz_found.py` reads it from then on: mend what it found, and keep the file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("onnx", "litert", "snapshot", "settings")
SECONDS, MEGABYTES = 10, 2048


def main() -> int:
    """Fuzz the targets one after the other; 1 if something was found."""
    parser = argparse.ArgumentParser(description="fuzz what reads files of others")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--runs", type=int, default=-1, help="inputs for each target, if that is fewer")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        return _alone(args)
    codes = {name: _start(name, args) for name in args.targets or NAMES}
    for name, code in codes.items():
        print(f"fuzz: {name}: {'something was found' if code else 'nothing found'}", flush=True)
    return int(any(codes.values()))


def _start(name: str, args: argparse.Namespace) -> int:
    """A target in a process of its own: a crash ends it."""
    words = ["--alone", name, "--seconds", str(args.seconds), "--runs", str(args.runs)]
    return subprocess.run([sys.executable, __file__, *words], check=False).returncode


def _alone(args: argparse.Namespace) -> int:
    import atheris

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with atheris.instrument_imports(include=["quaver", "yaml"]):
        import fuzz_targets
    found = fuzz_targets.FOUND / args.alone
    found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for path in fuzz_targets.kept(args.alone):
            shutil.copy(path, Path(folder) / f"seed-{path.name}")
        limits = [f"-max_total_time={args.seconds}", f"-runs={args.runs}", f"-timeout={SECONDS}"]
        limits += [f"-rss_limit_mb={MEGABYTES}", "-max_len=65536", "-print_final_stats=1", "-verbosity=1"]
        atheris.Setup(
            [sys.argv[0], *limits, f"-artifact_prefix={found}/", folder],
            lambda data: fuzz_targets.harmless(args.alone, data),
        )
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())

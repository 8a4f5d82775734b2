"""Runs random graphs through quaver in processes of their own, and counts what becomes of them.

    python tests/fuzz/graph_fuzzer.py --graphs 20000             all, two at a time
    python tests/fuzz/graph_fuzzer.py --graphs 20000 --resume    continue where the last run ended
    python tests/fuzz/graph_fuzzer.py --seed 4711                one graph, and a smaller model that fails the same way
    python tests/fuzz/graph_fuzzer.py --model file.onnx          a model that was saved

A model that goes wrong is saved with its seed in `build/fuzz/graphs/`, beside `outcomes.jsonl`, a line for each graph.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import onnx
from graph_builder import make_feeds, session_of
from graph_check import HARMLESS, OPTIMISER, Outcome, check_model
from graph_shrinking import shrink
from random_graphs import make_model

FOLDER = Path("build/fuzz/graphs")
# A graph takes 0.1 to 0.3 s; a whole fit some seconds.
MAX_SECONDS, MAX_BYTES = 120.0, 8 * 2**30
# One graph in this many goes through a whole fit. Workers restart after a number of graphs, so that leaks stay small.
TUNED_EVERY, GRAPHS_OF_A_WORKER = 100, 50


def fuzz(seeds: Iterable[int], workers: int = 2, tuned_every: int = TUNED_EVERY) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcome of each seed's graph; a graph that ends its process or hangs costs that graph alone."""
    waiting = iter(seeds)
    running: list[_Worker] = []
    exhausted = False
    while running or not exhausted:
        while not exhausted and len(running) < workers:
            batch = list(itertools.islice(waiting, GRAPHS_OF_A_WORKER))
            exhausted = not batch
            if batch:
                running.append(_Worker(batch, tuned_every))
        wait([worker.results for worker in running], timeout=1.0)
        for worker in list(running):
            yield from worker.receive()
            yield from worker.watch_over()
            if worker.is_done:
                worker.end()
                running.remove(worker)


class _Worker:
    """A process that checks the graphs of some seeds, one after the other."""

    def __init__(self, seeds: list[int], tuned_every: int) -> None:
        self._seeds, self._tuned_every = seeds, tuned_every
        self._start()

    @property
    def is_done(self) -> bool:
        return not self._seeds

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.results, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(theirs, self._seeds, self._tuned_every))
        self._process.start()
        theirs.close()
        self._since = time.monotonic()

    def receive(self) -> Iterator[tuple[int, Outcome]]:
        """Yield what the process has sent."""
        try:
            while self._seeds and self.results.poll():
                outcome = self.results.recv()
                self._since = time.monotonic()
                yield self._seeds.pop(0), outcome
        except EOFError:
            pass

    def watch_over(self) -> Iterator[tuple[int, Outcome]]:
        """Yield the outcome of a graph that ended its process or took too long; another process does the rest."""
        if not self._seeds:
            return
        if self._process.is_alive():
            if time.monotonic() - self._since < MAX_SECONDS:
                return
            self._process.kill()
            self._process.join()
            outcome = Outcome("hang", f"more than {MAX_SECONDS:.0f} s")
        else:
            self._process.join()
            yield from self.receive()  # what it sent before it ended
            if not self._seeds:
                return
            outcome = _outcome_of_abort(make_model(self._seeds[0]), self._process.exitcode)
        yield self._seeds.pop(0), outcome
        if self._seeds:
            self._start()

    def end(self) -> None:
        """Wait for the process."""
        self._process.join()
        self.results.close()


def _work(results: Connection, seeds: list[int], tuned_every: int) -> None:
    _limit()
    for seed in seeds:
        results.send(check_model(make_model(seed), seed, tuned=bool(tuned_every) and seed % tuned_every == 0))
    results.close()
    os._exit(0)


def _limit() -> None:
    """Bound the memory of a worker, and keep what runtimes print about models to themselves."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)


def check_isolated(model: onnx.ModelProto, seed: int = 0, tuned: bool = False, probed: bool = False) -> Outcome:
    """Return the outcome of a model that may end its process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def work() -> None:
        _limit()
        theirs.send(check_model(model, seed, tuned, probed))
        os._exit(0)

    process = context.Process(target=work)
    process.start()
    theirs.close()
    try:
        if not ours.poll(MAX_SECONDS):
            process.kill()
            return Outcome("hang")
        outcome: Outcome = ours.recv()
    except EOFError:
        process.join()
        return _outcome_of_abort(model, process.exitcode)
    finally:
        process.join()
    return outcome


def _outcome_of_abort(model: onnx.ModelProto, exitcode: int | None) -> Outcome:
    """Return the outcome of a process that ended: ONNX Runtime may do that by itself, with the model as given."""
    code = exitcode or 0
    text = signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def work() -> None:
        _limit()
        with contextlib.suppress(Exception):
            session = session_of(model.SerializeToString(), optimised=True)
            for feed in make_feeds(model):
                session.run(None, feed)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(MAX_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    return Outcome(OPTIMISER if process.exitcode == exitcode else "abort", text)


def shrunk(model: onnx.ModelProto, outcome: Outcome, seed: int, tuned: bool = False) -> onnx.ModelProto:
    """Return a smaller model with the same outcome."""

    def is_same(candidate: onnx.ModelProto) -> bool:
        try:
            result = check_isolated(candidate, seed, tuned)
        except Exception:
            return False
        return result.kind == outcome.kind and result.detail[:40] == outcome.detail[:40]

    return shrink(model, is_same)


def main() -> int:
    """Fuzz, or look at one graph; 1 if something went wrong."""
    parser = argparse.ArgumentParser(description="run random graphs through quaver")
    parser.add_argument("--graphs", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--resume", action="store_true", help="leave out seeds that have an outcome already")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where outcomes and failing models go")
    parser.add_argument("--seed", type=int, help="look at this graph alone, and shrink it if it goes wrong")
    parser.add_argument("--model", type=Path, help="look at this file alone")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.seed is not None or args.model is not None:
        return _look_at(args)
    return _run(args)


def _look_at(args: argparse.Namespace) -> int:
    """Check one graph; shrink it if it goes wrong."""
    seed = args.seed or 0
    model = make_model(seed) if args.model is None else onnx.load(args.model)
    tuned = args.model is None and seed % TUNED_EVERY == 0
    outcome = check_isolated(model, seed, tuned)
    print(f"{outcome.kind}: {outcome.detail}" if outcome.detail else outcome.kind)
    if outcome.harmless:
        return 0
    smaller = shrunk(model, outcome, seed, tuned)
    path = args.folder / f"{seed if args.model is None else args.model.stem}-small.onnx"
    onnx.save(smaller, path)
    print(f"{path}\n{onnx.printer.to_text(smaller.graph)[:6000]}")
    return 1


def _run(args: argparse.Namespace) -> int:
    """Check many graphs, write an outcome for each, and print how many there are of each kind."""
    journal = args.folder / "outcomes.jsonl"
    known = _read(journal) if args.resume else {}
    if not args.resume:
        journal.unlink(missing_ok=True)
    counts = Counter(known.values())
    seeds = [seed for seed in range(args.first, args.first + args.graphs) if seed not in known]
    begun = time.monotonic()
    with open(journal, "a", encoding="utf-8") as file:
        for number, (seed, outcome) in enumerate(fuzz(seeds, args.workers), 1):
            counts[outcome.kind] += 1
            file.write(json.dumps({"seed": seed, **outcome._asdict()}) + "\n")
            file.flush()
            if not outcome.harmless:
                onnx.save(make_model(seed), args.folder / f"{seed}.onnx")
                print(f"graph {seed}: {outcome.kind}: {outcome.detail}", flush=True)
            if number % 1000 == 0:
                print(f"{number} of {len(seeds)} graphs, {time.monotonic() - begun:.0f} s", flush=True)
    print(report(counts))
    return int(any(kind not in HARMLESS for kind in counts))


def _read(journal: Path) -> dict[int, str]:
    """Return the outcomes of an earlier run; a torn last line is left out."""
    outcomes = {}
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.exists() else ():
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        outcomes[int(entry["seed"])] = str(entry["kind"])
    return outcomes


def report(counts: Counter[str]) -> str:
    """Return a table of how many graphs had which outcome."""
    lines = [f"{counts.total():>8} graphs"]
    for kind, count in counts.most_common():
        lines.append(f"{count:>8} {kind}{'' if kind in HARMLESS else '   <-- wrong'}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""The `quaver` command: run a verb and turn errors into one paragraph and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import quaver
from quaver import formatting
from quaver.api.signals import terminating
from quaver.command import sentences, user_files, verbs
from quaver.command.json_records import print_json
from quaver.command.output import guarded_stdout, json_alone, plain_warnings
from quaver.errors import QuaverError, SettingsError
from quaver.suggestions import hint

COMMANDS = {
    module.name: importlib.import_module(f"{verbs.__name__}.{module.name}")
    for module in pkgutil.iter_modules(verbs.__path__)
}

DESCRIPTION = """\
Find which ops of a float model can run in int8 while accuracy stays within your criterion.

  quaver demo                                      tune a small network, in less than a minute
  quaver tune --model model.onnx --calib calib.npz --eval my_eval.py:accuracy -o model-int8.onnx
  quaver history quaver_workspace/RUN              list the trials
  quaver show quaver_workspace/RUN 3               show how trial 3 ran each op
  quaver recover model.onnx quaver_workspace/RUN 3 -o trial3.onnx
  quaver compare quaver_workspace/RUN quaver_workspace/OTHER    show runs side by side
  quaver check model.onnx model-int8.onnx --eval my_eval.py:accuracy --relative 0.01
  quaver diagnose model.onnx --calib calib.npz     explain which ops lose accuracy in int8
  quaver profile model.onnx --against model-int8.onnx
  quaver export quaver_workspace/RUN --optuna journal.log
  quaver insights                                  show all runs on a live web page
  quaver report quaver_workspace/RUN -o report.html
  quaver card quaver_workspace/RUN -o README.md    write a model card
  quaver schema > quaver.schema.json               let an editor check YAML files
"""

EPILOG = """\
exit codes: 0 the criterion is met (or the command succeeded), 3 it is not met, 4 `quaver check` is
inconclusive, 2 wrong usage or a reported error, 1 an unexpected error, 130 interrupted without a result.
Run `quaver COMMAND --help` for the options of a command.
"""


class UsageError(SystemExit):
    """A wrong command line.

    Attributes:
        message: what is wrong, in one paragraph.
    """

    def __init__(self, message: str) -> None:
        super().__init__(2)
        self.message = message


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one paragraph."""

    def error(self, message: str) -> NoReturn:
        """Report an error and exit with code 2."""
        text = formatting.paragraph(message)
        print(f"{self.prog}: {text} (`{self.prog} --help` shows the options)", file=sys.stderr, flush=True)
        raise UsageError(text)


def make_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser, and the parsers of the commands by name."""
    parser = _Parser(
        prog="quaver",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"quaver {quaver.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    parsers = {}
    for name, module in COMMANDS.items():
        parsers[name] = command = module.add(subparsers)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.allow_abbrev = False
        command.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    return parser, parsers


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; for a misspelt command or flag, suggest the nearest name."""
    parser, parsers = make_parser()
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        parser.error(f"there is no command {argv[0]!r}; {hint(argv[0], COMMANDS)}")
    args, unknown = parser.parse_known_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        raise SystemExit(2)
    if unknown:
        chosen = parsers[args.command]
        flag = next((item for item in unknown if item.startswith("-")), None)
        if flag is None:
            chosen.error(f"one argument too many: {unknown[0]!r}")
        name = flag.split("=")[0]
        options = [option for option in chosen._option_string_actions if option.startswith("--")]
        chosen.error(f"unknown option {name!r}; {hint(name, options)}")
    args.argv = list(argv)
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal cannot show must not end a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    with guarded_stdout() as output, plain_warnings():
        try:
            code = _run(words)
            output.flush()
        except SystemExit as error:  # --help, --version and wrong usage
            output.flush()
            if output.error is None:
                raise
            code = error.code if isinstance(error.code, int) else 0
        if output.error is None:
            return code
    reason = output.error.strerror or output.error
    if isinstance(output.error, BrokenPipeError):
        reason = "its reader closed it"
    with contextlib.suppress(OSError):  # stderr may be full, too
        print(
            f"quaver: some output was lost because stdout cannot be written ({reason}); everything else was done",
            file=sys.stderr,
            flush=True,
        )
    return code or 1


def _run(words: Sequence[str]) -> int:
    """Run one command; report an error as a paragraph on stderr and, with --json, as an object on stdout."""
    try:
        args = parse(words)
    except UsageError as error:
        if "--json" in words:
            print_json({"error": error.message, "exit_code": 2})
        raise
    try:
        _check_current_folder()
        with terminating(), json_alone(getattr(args, "json", False)):
            code: int = COMMANDS[args.command].run(args)
        return code
    except QuaverError as error:
        return _failed(error, args, 2, "")
    except KeyboardInterrupt as error:
        return _failed(error, args, 130, "interrupted before there was a result")
    except Exception as error:
        hint_at = "" if args.debug else "; --debug shows the traceback"
        return _failed(error, args, 1, f"{type(error).__name__}: {error}{hint_at}")


def _check_current_folder() -> None:
    """Refuse to work in a folder that was removed, where every relative path would fail differently."""
    try:
        os.getcwd()
    except OSError as error:
        raise SettingsError(
            f"the current folder no longer exists ({error.strerror}): change to an existing folder"
        ) from error


def _failed(error: BaseException, args: argparse.Namespace, code: int, message: str) -> int:
    if args.debug and not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(error)
    place = "" if isinstance(error, KeyboardInterrupt) else user_files.where(error)
    parts = [message or str(error), place, *getattr(error, "__notes__", ())]
    text = ". ".join(part.strip().rstrip(".") for part in parts if part)
    paragraph = formatting.paragraph(sentences.in_shell_words(text))
    print(f"quaver: {paragraph}", file=sys.stderr, flush=True)
    if getattr(args, "json", False):
        print_json({"error": paragraph, "exit_code": code})
    return code


if __name__ == "__main__":
    sys.exit(main())

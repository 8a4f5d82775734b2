"""A verdict as JUnit XML, which every CI shows beside the tests."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET  # nosec B405 - written, never read

from quaver.api.verdict import CheckResult, Verdict
from quaver.errors import SettingsError


def write(found: CheckResult, path: Path, name: str) -> None:
    """Write a suite with a case for each limit, the speed and the other processor. All but "met" has failed."""
    cases = [(f"loss of {one.name}", one.verdict, str(one)) for one in found.limits]
    if found.speed is not None:
        cases.append(("speed", found.speed.verdict, str(found.speed)))
    if found.processor is not None:
        cases.append((f"answers on {found.processor.cpu}", found.processor.verdict, str(found.processor)))
    failed = sum(verdict is not Verdict.MET for _, verdict, _ in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0"}
    suite = ET.Element("testsuite", {"name": f"quaver check {name}", **counts})
    for title, verdict, said in cases:
        case = ET.SubElement(suite, "testcase", classname="quaver.check", name=title)
        if verdict is not Verdict.MET:
            ET.SubElement(case, "failure", type=str(verdict), message=said).text = said
        ET.SubElement(case, "system-out").text = said
    tree = ET.ElementTree(suite)
    ET.indent(tree)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tree.write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise SettingsError(f"--junit {str(path)!r} cannot be written: {error.strerror}") from error

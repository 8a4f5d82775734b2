"""Draw docs/demo.svg from the output of the demo: python docs/picture.py"""

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "quaver.command.main", "demo", "--keep", str(Path(folder) / "demo")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
lines = output.split("\nThe files are in")[0].split("reading the model\n")[1].splitlines()
console = Console(record=True, width=112, file=io.StringIO())
console.print(Text("$ make demo", style="bold green"))
for line in lines:
    style = "bold" if ", met" in line else "cyan" if line.startswith("  /") else ""
    console.print(Text(line, style=style))
svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="quaver"), flags=re.S)  # no fonts of other hosts
Path(__file__).with_name("demo.svg").write_text(svg, encoding="utf-8")

"""Draw docs/demo.svg from what the demo prints: python docs/picture.py"""

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
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
lines = shown.split("\nThe files are in")[0].split("reading the model\n")[1].splitlines()
console = Console(record=True, width=112, file=io.StringIO())
console.print(Text("$ make demo", style="bold green"))
for line in lines:
    style = "bold" if ", met" in line else "cyan" if line.startswith("  /") else ""
    console.print(Text(line, style=style))
drawn = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="quaver"), flags=re.S)  # no fonts from elsewhere
Path(__file__).with_name("demo.svg").write_text(drawn, encoding="utf-8")

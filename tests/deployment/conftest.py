"""Saved int8 files of a CNN and of a text model, and what Python answers with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "docs"), str(HERE.parent / "support")]

from saved_models import SavedModel, tune_cnn, tune_tagger, tune_texts  # noqa: E402


@pytest.fixture(scope="session")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return tune_cnn(tmp_path_factory.mktemp("cnn"))


@pytest.fixture(scope="session")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return tune_tagger(tmp_path_factory.mktemp("tagger"))


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return tune_texts(tmp_path_factory.mktemp("texts"))

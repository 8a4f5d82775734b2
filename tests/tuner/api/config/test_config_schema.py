"""The JSON schema of YAML files accepts what quaver accepts."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from quaver import Config
from quaver.api.config.resolve import make_config
from quaver.api.config.schema import json_schema
from quaver.command.main import main

DOCS = Path(__file__).parents[4] / "docs"


def test_every_setting_is_in_it_with_its_description_by_both_names() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(Config().to_dict()) <= set(schema["properties"])
    nested = schema["properties"]["tuning"]["properties"]["strategy"]["properties"]["name"]
    assert nested == schema["properties"]["strategy"] and nested["description"].startswith("The search strategy")


def test_a_file_with_all_defaults_and_a_flat_file_are_valid() -> None:
    blocks = (DOCS / "settings.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    for block in blocks:
        content = yaml.safe_load(block.split("```")[0])
        jsonschema.validate(content, json_schema())
        make_config(content)


@pytest.mark.parametrize("content", [{"relativ": 0.1}, {"max_trials": "many"}, {"tuning": {"strategie": {}}}])
def test_a_wrong_name_or_type_is_found(content: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, json_schema())


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()

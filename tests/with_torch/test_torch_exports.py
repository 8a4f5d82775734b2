"""Files of both exporters of PyTorch are read, and models of `transformers` keep what their documents rely on."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_scenes
from torch import nn
from transformers import LayoutLMv3Config, LayoutLMv3ForTokenClassification

import quaver
from quaver.adapters import AdapterOptions, load_model

# What the walk with LayoutLMv3 sends back to fp32.
WIDE = (r"/layoutlmv3/encoder/layer.\d+/output/dense/MatMul", r"/layoutlmv3/encoder/layer.\d+/output/Add")
LAYERS = 3


def test_the_newer_exporter_writes_weights_beside_the_file_and_that_is_read(tmp_path: Path) -> None:
    names = torch_scenes.of_images()
    path = tmp_path / "model.onnx"
    torch.onnx.export(
        names["module"].eval(), (names["images"][:2],), path, input_names=["image"],
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), external_data=True,
    )  # fmt: skip
    assert path.with_name("model.onnx.data").exists()

    def accuracy(model: quaver.Model) -> float:
        return float((model(names["images"]).argmax(axis=1) == names["labels"]).mean())

    result = quaver.fit(
        path, calib_dataloader=names["loader"], eval_func=accuracy, workspace=tmp_path / "run", verbose=0
    )
    assert result.met


class Tagger(nn.Module):
    """The words' side of LayoutLMv3, small and untrained, as it is exported: names of modules become names of ops."""

    def __init__(self) -> None:
        super().__init__()
        config = LayoutLMv3Config(
            vocab_size=200, hidden_size=48, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=96,
            max_position_embeddings=64, max_2d_position_embeddings=64, coordinate_size=8, shape_size=8, num_labels=5,
            visual_embed=False,
        )  # fmt: skip
        whole = LayoutLMv3ForTokenClassification(config)
        self.layoutlmv3, self.classifier = whole.layoutlmv3, whole.classifier

    def forward(self, input_ids: torch.Tensor, bbox: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        seen = self.layoutlmv3(input_ids=input_ids, bbox=bbox, attention_mask=attention_mask)[0]
        found: torch.Tensor = self.classifier(seen)
        return found


@pytest.fixture
def tokens() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    ids, mask = torch.randint(3, 200, (16, 24)), torch.ones(16, 24, dtype=torch.long)
    mask[::2, 16:] = 0
    ids[mask == 0] = 1
    return {"input_ids": ids, "bbox": torch.randint(0, 60, (16, 24, 4)).sort(-1).values, "attention_mask": mask}


def test_masks_of_the_real_layoutlmv3_are_no_ops_and_the_documents_rules_meet_its_ops(
    tokens: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    tagger, path = Tagger(), tmp_path / "tagger.onnx"
    torch_scenes.save_onnx(tagger, tuple(tokens.values()), path)
    adapter = load_model(path, AdapterOptions())
    names = [op.name for op in adapter.ops()]
    assert [sum(re.fullmatch(rule, name) is not None for name in names) for rule in WIDE] == [LAYERS, LAYERS]
    assert {one.kind: one.count for one in adapter.unquantizable()}["Add"] == LAYERS  # each adds the mask
    adapter.close()
    data = {name: value.numpy() for name, value in tokens.items()}
    result = quaver.fit(
        path, calib_dataloader=data, strategy="basic", op_name_dict=dict.fromkeys(WIDE, quaver.FP32), verbose=0,
        workspace=tmp_path / "run",
    )  # fmt: skip
    assert len(result.best.config.fp32_ops) == 2 * LAYERS
    with torch.no_grad():
        expected = tagger(*tokens.values()).numpy()
    assert np.abs(result.model(data) - expected).max() < 0.05 * np.abs(expected).max()

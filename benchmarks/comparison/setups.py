"""On what the tools are compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setup:
    """A model and the rules of its runs.

    Attributes:
        model: what `benchmarks.models.load` takes.
        per_tensor: one scale per weight only, as for hardware that knows no other.
        transformer: tools that want to know are told.
    """

    model: str
    per_tensor: bool = False
    transformer: bool = False

    @property
    def flags(self) -> list[str]:
        """The same for the command line of a job."""
        return ["--per-tensor"] * self.per_tensor + ["--transformer"] * self.transformer


SETUPS = {
    "resnet8_cifar10": Setup("resnet8_cifar10"),
    "mobilenetv2_cifar10": Setup("mobilenetv2_cifar10"),
    "mobilenetv2_cifar10 per-tensor": Setup("mobilenetv2_cifar10", per_tensor=True),
    "ppocr_cls180": Setup("ppocr_cls180"),
    "ppocrv4_en_rec": Setup("ppocrv4_en_rec"),
    "magika_filetype": Setup("magika_filetype"),
    "minilm_imdb": Setup("minilm_imdb", transformer=True),
    "minilm_retrieval": Setup("minilm_retrieval", transformer=True),
    "fashion_dscnn": Setup("fashion_dscnn"),
}
QUICK_SETUPS = ("ppocr_cls180", "ppocrv4_en_rec", "magika_filetype")  # ready within a minute or two
QUICK_TOOLS = ("quaver auto", "ORT default", "ORT per-channel")

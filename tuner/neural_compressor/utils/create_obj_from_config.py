"""`create_dataloader` of Neural Compressor, for the data of its TensorFlow image examples."""

from __future__ import annotations

from typing import Any

from quaver.errors import SettingsError
from quaver.neural_compressor.absent import absent_names
from quaver.neural_compressor.data import DataLoader
from quaver.types import PlainMapping

DATASET, TRANSFORM = "ImageRecord", "BilinearImagenet"
_WRITE = "pass any iterable of (input, label) batches, such as quaver.neural_compressor.data.DataLoader(dataset=...)"


def create_dataloader(framework: str, dataloader_cfg: PlainMapping) -> DataLoader:
    """Return a dataloader of TensorFlow's `ImageRecord` files with the transform `BilinearImagenet`.

    Raises:
        SettingsError: for another framework, dataset, transform or option.
    """
    options = {name: value for name, value in dataloader_cfg.items() if value is not None}
    name, arguments = _only(options.pop("dataset", None), "dataset", DATASET)
    transform, sizes = _only(options.pop("transform", {TRANSFORM: {}}), "transform", TRANSFORM)
    if framework != "tensorflow" or name != DATASET or transform != TRANSFORM:
        raise SettingsError(
            f"create_dataloader reads the dataset {DATASET!r} with the transform {TRANSFORM!r} for 'tensorflow', not "
            f"{name!r} with {transform!r} for {framework!r}; {_WRITE}"
        )
    from quaver.adapters.litert.load.image_records import ImageRecords

    try:
        dataset = ImageRecords(**arguments, **sizes)
    except TypeError as error:
        raise SettingsError(f"create_dataloader: {error}") from None
    return DataLoader(framework, dataset, **options)


def _only(section: Any, name: str, example: str) -> tuple[str, dict[str, Any]]:
    """Return the only entry of a section, and its arguments."""
    if not isinstance(section, dict) or len(section) != 1:
        raise SettingsError(
            f"create_dataloader needs one {name}, such as {{{example!r}: {{...}}}}, not {section!r:.80}; {_WRITE}"
        )
    ((entry, arguments),) = section.items()
    return str(entry), {key: value for key, value in (arguments or {}).items() if value is not None}


__getattr__ = absent_names(__name__)

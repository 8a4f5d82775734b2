"""Find the adapter for a model. Adapters are entry points, so that a new one needs no change here.

Adapters registered in this process come first, then quaver's own, then others. Each is loaded when it is asked for: by
a name in `framework=`, or to ask if it accepts a model. One that cannot be loaded is named in a warning, and stops only
the run that asked for it by name.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeVar

from quaver.adapters.abilities import SupportsUnmodified, build_unmodified, supports
from quaver.adapters.base import Adapter
from quaver.adapters.generation import GenerationFolder, with_tokens
from quaver.adapters.model import Model
from quaver.adapters.model_errors import as_model_error
from quaver.adapters.options import AdapterOptions, resolve_quant_format
from quaver.adapters.torch import sources as torch_sources
from quaver.errors import ModelError, SettingsError
from quaver.files.paths import check_regular
from quaver.suggestions import hint
from quaver.types import CalibrationData, ModelLike

GROUP = "quaver.adapters"
_OURS = "quaver.adapters."
A = TypeVar("A", bound=type[Adapter])


_registered: dict[str, type[Adapter]] = {}


def register_adapter(cls: A) -> A:
    """Make an adapter available in this process without an entry point, as a class decorator."""
    _registered[cls.name] = cls
    return cls


class Installed(Mapping[str, type[Adapter]]):
    """Adapters by the names of their entry points, quaver's own first, each loaded on first use.

    Looking up one that cannot be loaded raises a `SettingsError` that names the entry point and its distribution.
    """

    def __init__(self, points: Iterator[EntryPoint]) -> None:
        ordered = sorted(points, key=lambda point: (not point.value.startswith(_OURS), point.name, point.value))
        self._points = {point.name: point for point in reversed(ordered)}
        self._names = list(dict.fromkeys(point.name for point in ordered))
        self._loaded: dict[str, type[Adapter] | SettingsError] = {}

    def __getitem__(self, name: str) -> type[Adapter]:
        if name not in self._loaded:
            try:
                self._loaded[name] = _load(self._points[name])
            except SettingsError as error:
                self._loaded[name] = error
        adapter = self._loaded[name]
        if isinstance(adapter, SettingsError):
            raise SettingsError(*adapter.args) from adapter.__cause__
        return adapter

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _load(point: EntryPoint) -> type[Adapter]:
    distribution = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"
    description = f"adapter {point.name!r}, entry point {point.value!r} of {distribution},"
    try:
        target = point.load()
    except (Exception, SystemExit) as error:
        raise SettingsError(f"{description} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(target, type) and issubclass(target, Adapter)):
        raise SettingsError(f"{description} is no subclass of quaver.adapters.Adapter but {target!r:.80}")
    return target


@functools.cache
def adapters() -> Mapping[str, type[Adapter]]:
    """Return all installed adapters by name."""
    return Installed(iter(entry_points(group=GROUP)))


def load_model(
    model: ModelLike, options: AdapterOptions, framework: str | None = None, runtime: str | None = None
) -> Adapter:
    """Load a model with the adapter of a framework and a runtime, or with the first that accepts it."""
    adapter_class = adapter_for(model, framework, runtime)
    quant_format = resolve_quant_format(adapter_class, options.quant_format, framework)
    return load_with(adapter_class, model, replace(options, quant_format=quant_format))


def load_with(kind: type[Adapter], model: ModelLike, options: AdapterOptions) -> Adapter:
    """Load a model with this adapter.

    Raises:
        ModelError: if the model is damaged or of an unsupported kind, whatever exception the framework raised.
    """
    with as_model_error(f"the model for {kind.name}"):
        return kind.load(model, options)


def import_model(
    model: ModelLike, data: CalibrationData, folder: Path, on_export: Callable[[], None]
) -> tuple[ModelLike, CalibrationData]:
    """Return a model as a file that an adapter loads, and its calibration data.

    A PyTorch model is exported into `folder`. Texts for a folder of onnxruntime-genai become token numbers. Any other
    model and its data are returned as they are.

    Args:
        model: the user's model.
        data: calibration data.
        folder: the workspace of the run.
        on_export: called before a model is exported, which takes seconds.
    """
    if GenerationFolder.of(model) is not None:
        return model, with_tokens(model, data)
    if not torch_sources.is_importable(model):
        return model, data
    from quaver.adapters.torch.importing import import_module

    return import_module(model, data, folder, on_export)


def imported_beside(model: ModelLike, history: Path) -> ModelLike:
    """Return the file that a run has made of a model, which lies beside its history; another model as it is."""
    if GenerationFolder.of(model) is not None or not torch_sources.is_importable(model):
        return model
    from quaver.adapters.torch.importing import exported_beside

    return exported_beside(history, model)


def load_unmodified(
    model: ModelLike, threads: int = 0, framework: str | None = None, runtime: str | None = None
) -> Model:
    """Load any model, float or quantized, exactly as it is."""
    adapter_class = adapter_for(model, framework, runtime)
    if supports(adapter_class, SupportsUnmodified):
        return adapter_class.load_unmodified(model, threads)
    return build_unmodified(load_with(adapter_class, model, AdapterOptions(threads=threads)))


def adapter_for(model: ModelLike, framework: str | None = None, runtime: str | None = None) -> type[Adapter]:
    """Return the adapter for a model.

    Args:
        model: the user's model, which the adapter must accept.
        framework: the framework that loads it; None for the first that accepts it.
        runtime: the runtime that runs it; None for the usual one of the framework.
    """
    adapter = _accepting(model, framework)
    if runtime not in (None, adapter.runtime_name) and isinstance(model, torch_sources.ExportedModule):
        raise SettingsError(
            f"runtime is set to {runtime!r}, where models are not called like a PyTorch module: pass the exported file "
            f"{str(model.path)!r}, whose models take and return arrays"
        )
    return adapter if runtime is None or adapter.runtime_name == runtime else _on_runtime(model, adapter, runtime)


def runtime_names() -> list[str]:
    """Return the values of `runtime`, the usual ones first."""
    ordered = sorted((adapter for _, adapter in _usable()), key=lambda adapter: not adapter.is_default)
    return list(dict.fromkeys(adapter.runtime_name for adapter in ordered if adapter.runtime_name))


def runtimes_of(model: ModelLike, framework: str | None = None) -> list[str]:
    """Return the runtimes that can run a model, the usual one first.

    Raises:
        SettingsError: if there is only one, or a package is missing.
    """
    usual = _accepting(model, framework).runtime_name
    names = [usual] if usual else []
    for name, adapter in _usable():
        if adapter.runtime_name and _accepts(name, adapter, model):
            adapter.check_installed()
            names.append(adapter.runtime_name)
    names = list(dict.fromkeys(names))
    if len(names) < 2:
        raise SettingsError(
            f"a model of {_accepting(model, framework).name} runs in one runtime only: leave `runtime` out"
        )
    return names


def _on_runtime(model: ModelLike, adapter: type[Adapter], runtime: str) -> type[Adapter]:
    """Return the adapter that runs the models of another one in a runtime."""
    names = runtime_names()
    if runtime not in names:
        raise SettingsError(f"unknown runtime {runtime!r}; {hint(str(runtime), dict.fromkeys(names))}")
    for name, other in _usable():
        if other.runtime_name == runtime and _accepts(name, other, model):
            return other
    raise SettingsError(
        f"runtime is set to {runtime!r}, which does not run models of {adapter.name}: leave it out, or pass the model "
        "in another form"
    )


def _accepting(model: ModelLike, framework: str | None) -> type[Adapter]:
    """Return the adapter of a framework, which must accept the model; without a name, the first that does."""
    if isinstance(model, str | os.PathLike):  # before an adapter opens it to identify it
        check_regular(model, "the model", ModelError, folders=True)
    framework = framework or getattr(model, "framework", None)  # an exported module names its adapter
    named = None if framework is None else _named(framework)
    usual = ((name, adapter) for name, adapter in _usable() if adapter.is_default)
    for name, adapter in usual if named is None else [(framework, named)]:
        if _accepts(name, adapter, model):
            return adapter
    if isinstance(model, str | os.PathLike) and not os.path.exists(model):
        raise ModelError(f"no model at {os.fspath(model)!r}")
    what = repr(os.fspath(model)) if isinstance(model, str | os.PathLike) else f"a {type(model).__name__}"
    if advice_on_torch := torch_sources.advice(model):
        raise ModelError(advice_on_torch)
    if named is not None:
        raise SettingsError(
            f"framework is set to {framework!r}, but adapter {named.name} does not accept {what}: "
            f"it accepts {named.accepted_forms}"
        )
    accepted = "; ".join(f"{name} accepts {adapter.accepted_forms}" for name, adapter in _usable())
    raise ModelError(f"no adapter accepts {what}: {accepted or 'none is installed'}")


def _named(framework: str) -> type[Adapter]:
    """Return the adapter for a value of `framework`; load others only if it is not an adapter's own name."""
    installed = adapters()
    if framework in _registered:
        return _registered[framework]
    if framework in installed:
        return installed[framework]
    names: list[str] = []
    for _, adapter in _usable():
        if framework in adapter.frameworks:
            return adapter
        names += adapter.frameworks
    raise SettingsError(f"unknown framework {framework!r}; {hint(str(framework), dict.fromkeys([*names, *installed]))}")


def _usable() -> Iterator[tuple[str, type[Adapter]]]:
    """Yield all adapters that can be loaded."""
    yield from _registered.items()
    installed = adapters()
    for name in installed:
        if name in _registered:
            continue
        try:
            adapter = installed[name]
        except SettingsError as error:
            warnings.warn(f"{error}. It is skipped", RuntimeWarning, stacklevel=3)
        else:
            yield name, adapter


def _accepts(name: str | None, adapter: type[Adapter], model: ModelLike) -> bool:
    try:
        return adapter.accepts(model)
    except Exception as error:
        warnings.warn(
            f"adapter {name!r} failed to check a model: {type(error).__name__}: {error}. It is skipped",
            RuntimeWarning,
            stacklevel=3,
        )
        return False

"""Write a complete adapter for a framework of a few lines: dense layers in numpy."""

import hashlib
import io
import time

import numpy as np

import quaver
from quaver.adapters import Adapter, InputSpec, StreamingCalibrator, refuse_repairs, register_adapter
from quaver.ops import FLOAT, INT8, Op, OpConfig
from quaver.testing import check_adapter


class Dense:
    """A network of the framework: a name and a weight per layer, with a Relu between layers."""

    def __init__(self, **weights):
        self.weights = weights

    def run(self, x, scales=None, recorded=None):
        """Return the outputs. A layer with a scale quantizes its input. `recorded` gets the tensors by name."""
        for name, weight in self.weights.items():
            x = np.maximum(x, 0) if name != next(iter(self.weights)) else x
            step = (scales or {}).get(name)
            x = x if step is None else np.clip(np.rint(x / step), -128, 127) * step
            if recorded is not None:
                recorded[f"{name}:in"] = x
            x = (x @ weight).astype(np.float32)
            if recorded is not None:
                recorded[name] = x
        return x


class DenseModel(quaver.Model):
    """A built model, as `eval_func` gets it."""

    suffix = ".dense"

    def __init__(self, inputs, dense, scales):
        super().__init__(inputs, threads=1)
        self.dense, self.scales = dense, scales

    def _open(self):
        return self.dense

    def _outputs(self, feed):
        return [self.session.run(feed["x"], self.scales)]

    def chunks(self):
        for name, weight in self.dense.weights.items():
            file = io.BytesIO()
            np.savez(file, weight=weight, name=name, scale=self.scales.get(name, 0.0))
            yield len(file.getvalue()).to_bytes(4, "little") + file.getvalue()


class Calibrator(StreamingCalibrator):
    """Runs the float model and returns the inputs of its layers."""

    def __init__(self, inputs, dense):
        super().__init__(inputs, [f"{name}:in" for name in dense.weights])
        self.dense = dense

    def values(self, feed):
        recorded = {}
        self.dense.run(feed["x"], recorded=recorded)
        return [(name, recorded[name]) for name in self.tensors]

    def origin_of(self, tensor):
        return "the input of a layer"


@register_adapter
class DenseAdapter(Adapter):
    """Accepts `Dense` objects. A package registers such a class in the entry point group `quaver.adapters`."""

    name = "dense"
    frameworks = ("dense",)
    suffix = ".dense"
    accepted_forms = "a Dense object"

    def __init__(self, dense, options):
        first = next(iter(dense.weights.values()))
        super().__init__(options, [InputSpec("x", np.dtype(np.float32), (None, len(first)))])
        self.dense, self.ranges = dense, {}

    @classmethod
    def accepts(cls, model):
        return isinstance(model, Dense)

    @classmethod
    def load(cls, model, options):
        return cls(model, options)

    @property
    def fingerprint(self):
        return hashlib.sha256(DenseModel(self.inputs, self.dense, {}).SerializeToString()).hexdigest()

    @property
    def versions(self):
        return {"numpy": np.__version__}

    def ops(self):
        choices = (*(OpConfig(INT8, method, "per_tensor", "sym") for method in ("minmax", "percentile")), FLOAT)
        return tuple(Op(name, "Dense", (name,), choices) for name in self.dense.weights)

    def calibrator(self):
        return Calibrator(self.inputs, self.dense)

    def restore(self, calibration):
        self.ranges = calibration["ranges"]

    def assemble(self, config):
        refuse_repairs(config, self.name)
        scales, weights = {}, {}
        for name, weight in self.dense.weights.items():
            weights[name] = weight
            if config is not None and config[name].quantized:
                scales[name] = max(map(abs, self.ranges[f"{name}:in"][config[name].calibration])) / 127
                step = float(np.abs(weight).max()) / 127
                weights[name] = (np.rint(weight / step) * step).astype(np.float32)
        return DenseModel(self.inputs, Dense(**weights), scales)

    def load_saved(self, path):
        content, weights, scales = path.read_bytes(), {}, {}
        while content:
            size = int.from_bytes(content[:4], "little")
            layer, content = np.load(io.BytesIO(content[4 : 4 + size])), content[4 + size :]
            weights[str(layer["name"])] = layer["weight"]
            if layer["scale"]:
                scales[str(layer["name"])] = float(layer["scale"])
        return DenseModel(self.inputs, Dense(**weights), scales)

    def record_outputs(self, config, ops):
        model = self.assemble(config)

        def outputs(feed):
            recorded = {}
            model.dense.run(feed["x"], model.scales, recorded)
            return {name: recorded[name] for name in ops}

        return outputs

    def op_seconds(self, config):
        model, start = self.assemble(config), time.perf_counter()
        model.run(self.probe_samples[0])
        whole = time.perf_counter() - start
        return {"": 0.0, **dict.fromkeys(self.dense.weights, whole / len(self.dense.weights))}


rng = np.random.default_rng(0)
model = Dense(**{f"layer{at}": (rng.normal(size=(16, 16)) / 3).astype(np.float32) for at in range(4)})
data = rng.normal(size=(64, 16)).astype(np.float32)
expected = model.run(data)


def closeness(built: quaver.Model) -> float:
    """Return how close the outputs are to those of the float model; 1 means equal."""
    return 1 - float(np.abs(built(data) - expected).mean() / np.abs(expected).mean())


check_adapter(lambda options: DenseAdapter.load(model, options), data, model=model)
print(quaver.fit(model, calib_dataloader=data, eval_func=closeness, relative=0.02, objective="size"))

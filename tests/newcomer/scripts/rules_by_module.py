"""A module stays in fp32, by its path."""

import numpy as np

import quaver

rules = {"features.1": "fp32", "layers.*": "fp32"}
for path, module in (("model.onnx", "features.1"), ("encoder.onnx", "layers.*")):
    result = quaver.fit(
        path, calib_dataloader=np.load("calib.npy"), op_name_dict={module: rules[module]}, strategy="basic"
    )
    inside = [op for op in result.best.config if module.removesuffix(".*") in op]
    assert inside and set(inside) <= set(result.best.config.fp32_ops), inside
    assert result.best.config.int8_ops

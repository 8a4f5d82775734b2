"""Tune a segmentation network with three classes: background, the digit 0, other digits. The score is mean IoU."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from sklearn.neural_network import MLPClassifier

import quaver
from quaver.demo.data import digits

PAGE, SIGHT, CLASSES = 24, 9, 3
train, train_labels, test, test_labels = digits()


def pages(images, labels, count, seed):
    """Return pages of four digits in 2 x 2 cells, and the class of each pixel."""
    random = np.random.default_rng(seed)
    made, masks = np.zeros((count, 1, PAGE, PAGE), np.float32), np.zeros((count, PAGE, PAGE), np.int64)
    zeros, others = np.flatnonzero(labels == 0), np.flatnonzero(labels != 0)
    for page, mask in zip(made, masks, strict=True):
        for cell in range(4):
            at = random.choice(zeros if random.random() < 0.5 else others)
            top, left = (12 * part + random.integers(0, 5) for part in divmod(cell, 2))
            page[0, top : top + 8, left : left + 8] = images[at, 0]
            mask[top : top + 8, left : left + 8] = (images[at, 0] > 0.25) * (1 if labels[at] == 0 else 2)
    return made, masks


def around(images):
    """Return the SIGHT x SIGHT surroundings of each pixel."""
    wide = np.pad(images[:, 0], ((0, 0), (SIGHT // 2, SIGHT // 2), (SIGHT // 2, SIGHT // 2)))
    return np.lib.stride_tricks.sliding_window_view(wide, (SIGHT, SIGHT), axis=(1, 2)).reshape(-1, SIGHT * SIGHT)


def network(classifier):
    """Return the classifier of pixels as convolutions over a page."""
    nodes, initializers, last = [], [], "page"
    for number, (weight, bias) in enumerate(zip(classifier.coefs_, classifier.intercepts_, strict=True)):
        shape = (-1, 1, SIGHT, SIGHT) if number == 0 else (len(bias), -1, 1, 1)
        kernel = np.ascontiguousarray(weight.T, np.float32).reshape(shape)
        initializers += [
            numpy_helper.from_array(kernel, f"w{number}"),
            numpy_helper.from_array(bias.astype(np.float32), f"b{number}"),
        ]
        inputs, pads = [last, f"w{number}", f"b{number}"], [kernel.shape[-1] // 2] * 4
        nodes.append(helper.make_node("Conv", inputs, [f"conv{number}"], f"conv{number}", pads=pads))
        last = f"conv{number}"
        if number < len(classifier.coefs_) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"relu{number}"], f"relu{number}"))
            last = f"relu{number}"
    page = helper.make_tensor_value_info("page", TensorProto.FLOAT, ["n", 1, PAGE, PAGE])
    scores = helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", CLASSES, PAGE, PAGE])
    graph = helper.make_graph(nodes, "segmentation", [page], [scores], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


images, masks = pages(train, train_labels, 120, seed=0)
classifier = MLPClassifier((48, 32), max_iter=12, random_state=0).fit(around(images), masks.reshape(-1))
test_images, test_masks = pages(test, test_labels, 60, seed=1)


def mean_iou(model):
    """Return the mean over classes of intersection over union."""
    predicted = model(test_images).argmax(axis=1)
    parts = []
    for kind in range(CLASSES):
        predicted_mask, true_mask = predicted == kind, test_masks == kind
        parts.append((predicted_mask & true_mask).sum() / (predicted_mask | true_mask).sum())
    return float(np.mean(parts))


result = quaver.fit(network(classifier), calib_dataloader=images[:64], eval_func=mean_iou, relative=0.01)
print(result)

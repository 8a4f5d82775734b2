"""Tune a detector that finds the digits on a page. The score is F1 over boxes.

scikit-learn trains a classifier of 8 x 8 windows, which slides over the page as two convolutions. The output is a map
of scores. numpy turns it into boxes outside of the model, as in most detectors.
"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from sklearn.neural_network import MLPClassifier

import quaver
from quaver.demo.data import digits

PAGE, BOX, BACKGROUND = 32, 8, 10
train, train_labels, test, test_labels = digits()


def pages(images, labels, count, seed):
    """Return pages with three separate digits, and their boxes as (top, left, digit)."""
    random = np.random.default_rng(seed)
    made, truth = np.zeros((count, 1, PAGE, PAGE), np.float32), []
    for page in made:
        cells = random.permutation(9)[:3]
        boxes = []
        for cell, at in zip(cells, random.integers(0, len(images), 3), strict=True):
            top, left = (int(10 * part + random.integers(0, 3)) for part in divmod(int(cell), 3))
            page[0, top : top + BOX, left : left + BOX] = images[at, 0]
            boxes.append((top, left, int(labels[at])))
        truth.append(boxes)
    return made, truth


def windows(images, truth, random):
    """Return windows with a digit and windows without, and their labels."""
    parts, labels = [], []
    for page, boxes in zip(images[:, 0], truth, strict=True):
        for top, left, digit in boxes:
            parts.append(page[top : top + BOX, left : left + BOX])
            labels.append(digit)
        for top, left in random.integers(0, PAGE - BOX + 1, (9, 2)):
            if all(max(abs(top - box[0]), abs(left - box[1])) > 1 for box in boxes):
                parts.append(page[top : top + BOX, left : left + BOX])
                labels.append(BACKGROUND)
    return np.array(parts).reshape(len(parts), -1), labels


def network(classifier):
    """Return the classifier of windows as convolutions over a page."""
    (first, second), (one, two) = classifier.coefs_, classifier.intercepts_
    constants = {"w0": first.T.reshape(-1, 1, BOX, BOX), "b0": one, "w1": second.T[..., None, None], "b1": two}
    initializers = [
        numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name) for name, value in constants.items()
    ]
    nodes = [
        helper.make_node("Conv", ["page", "w0", "b0"], ["features"], "features"),
        helper.make_node("Relu", ["features"], ["active"], "relu"),
        helper.make_node("Conv", ["active", "w1", "b1"], ["scores"], "scores"),
    ]
    page = helper.make_tensor_value_info("page", TensorProto.FLOAT, ["n", 1, PAGE, PAGE])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 11, PAGE - BOX + 1, PAGE - BOX + 1])
    graph = helper.make_graph(nodes, "detector", [page], [scores], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def boxes_of(scores):
    """Return the places where a digit beats the background by most, without overlaps."""
    margin = scores[:BACKGROUND].max(axis=0) - scores[BACKGROUND]
    boxes = []
    for place in np.argsort(-margin, axis=None):
        top, left = np.unravel_index(place, margin.shape)
        if margin[top, left] <= 0:
            break
        if all(max(abs(top - box[0]), abs(left - box[1])) >= BOX for box in boxes):
            boxes.append((int(top), int(left), int(scores[:BACKGROUND, top, left].argmax())))
    return boxes


images, truth = pages(train, train_labels, 800, seed=0)
classifier = MLPClassifier((48,), max_iter=30, random_state=0).fit(*windows(images, truth, np.random.default_rng(1)))
test_images, test_truth = pages(test, test_labels, 150, seed=2)


def f1(model):
    """Return F1 over boxes. A box counts if its digit is right and it is within two pixels of the true box."""
    correct = predicted = 0
    for scores, boxes in zip(model(test_images), test_truth, strict=True):
        guesses = boxes_of(scores)
        predicted += len(guesses)
        correct += sum(
            any(digit == box[2] and max(abs(top - box[0]), abs(left - box[1])) <= 2 for box in boxes)
            for top, left, digit in guesses
        )
    return 2 * correct / (predicted + sum(map(len, test_truth)))


result = quaver.fit(network(classifier), calib_dataloader=images[:64], eval_func=f1, relative=0.01)
print(result)

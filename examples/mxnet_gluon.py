"""Train a Gluon network, tune it to MXNet's int8, export it, and run it with MXNet alone."""

import numpy as np
from sklearn.datasets import load_digits

import quaver
from quaver.adapters.mxnet import mxnet as mx  # `import mxnet as mx` works up to Python 3.11

gluon, nn = mx.gluon, mx.gluon.nn
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.images))
images, labels = (digits.images[order, None] / 16).astype(np.float32), digits.target[order]
train = gluon.data.DataLoader(gluon.data.ArrayDataset(images[:1300], labels[:1300]), 50)
test = gluon.data.DataLoader(gluon.data.ArrayDataset(images[1300:], labels[1300:]), 50)

mx.random.seed(0)
net = nn.HybridSequential()
net.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D())
net.add(nn.Conv2D(32, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten(), nn.Dense(10))
net.initialize(mx.init.Xavier())
net.hybridize()
loss, trainer = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.Trainer(net.collect_params(), "adam")
for _ in range(4):
    for x, y in train:
        with mx.autograd.record():
            error = loss(net(x), y)
        error.backward()
        trainer.step(len(x))


def accuracy(model) -> float:
    """Return the accuracy, as for any Gluon network: the model takes and returns NDArrays."""
    metric = mx.metric.Accuracy()
    for x, y in test:
        metric.update(y, model(x))
    return metric.get()[1]


result = quaver.fit(net, calib_dataloader=train, eval_func=accuracy, relative=0.01)
print(result)
for op in result.best.config:
    print(f"{op:32} {result.best.config[op]}")

symbol_file, params_file = result.model.export("digits-int8")
alone = gluon.SymbolBlock.imports(str(symbol_file), ["data"], str(params_file))
print(f"accuracy of the exported files: {accuracy(alone):.4f}")

"""Train an image classifier in PyTorch, and tune it to an int8 file.

Needs torch and onnxscript; without torch, this only says so.
"""

from importlib.util import find_spec

import quaver
from quaver.demo.data import digits


def main():
    """Train and tune."""
    if find_spec("torch") is None:
        print("this example needs PyTorch: pip install torch onnxscript")
        return
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    train, train_labels, images, labels = digits()
    x, y = torch.from_numpy(train), torch.from_numpy(train_labels)
    optimizer = torch.optim.Adam(module.parameters(), 0.003)
    for _ in range(8):
        for rows in torch.randperm(len(x)).split(32):
            loss = nn.functional.cross_entropy(module(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    test = torch.from_numpy(images)

    def accuracy(model):
        """Return the share of correct test images; the model is called like the module."""
        return float((model(test).argmax(dim=1) == torch.from_numpy(labels)).float().mean())

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[:256], y[:256]), batch_size=32)
    result = quaver.fit(module, calib_dataloader=loader, eval_func=accuracy, relative=0.01)
    print(result)
    if result.met:
        result.save("digits-int8.onnx")


if __name__ == "__main__":
    main()

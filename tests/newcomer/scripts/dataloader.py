"""A torch module with its DataLoader; without torch, the script says what to install."""

import numpy as np

import quaver

try:
    import torch
except ImportError:
    raise SystemExit("this script needs PyTorch: pip install torch onnxscript") from None

torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(576, 10))
calib, images = (torch.from_numpy(np.load(name)) for name in ("calib.npy", "images.npy"))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(calib, torch.zeros(len(calib))), batch_size=16)
with torch.no_grad():
    labels = module(images).argmax(dim=1)


def accuracy(model):
    return float((model(images).argmax(dim=1) == labels).float().mean())


result = quaver.fit(module, calib_dataloader=loader, eval_func=accuracy, relative=0.1, strategy="basic")
print(result)
assert result.met

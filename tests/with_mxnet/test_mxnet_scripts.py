"""The scripts of MXNet's tutorial on Neural Compressor run as programs, with one import line changed.

Small trained networks stand for the downloaded ones, and a file of digits in the same format for ImageNet; `smaller`
names each line that this touches. `mx.gluon.metric` is MXNet 2's name of `mx.metric`.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import mxnet_custom_strategy
from benchmarks import mxnet_resnet as resnet
from quaver.adapters.mxnet import mxnet as mx

MEAN, DEVIATION = np.float32([123.68, 116.779, 103.939]), np.float32([58.393, 57.12, 57.375])
IMPORT, BRIDGE = "from neural_compressor.", "from quaver.neural_compressor."
CNN_YAML = """\
version: 1.0

model:
  name: cnn
  framework: mxnet

quantization:
  calibration:
    sampling_size: 160 # number of samples for calibration

tuning:
  strategy:
    name: basic
  accuracy_criterion:
    relative: 0.01
  exit_policy:
    timeout: 0
  random_seed: 9527
"""
RESNET_YAML = """\
version: 1.0

model:
  name: resnet50_v2
  framework: mxnet

quantization:
  calibration:
    sampling_size: 192 # number of samples for calibration

tuning:
  strategy:
    name: mse
  accuracy_criterion:
    relative: 0.015
  exit_policy:
    timeout: 0
    max_trials: 500
  random_seed: 9527
"""
RESNET18 = """\
import logging
import mxnet as mx
from mxnet.gluon.model_zoo import vision

logging.basicConfig()
logger = logging.getLogger('logger')
logger.setLevel(logging.INFO)

batch_shape = (1, 3, 224, 224)
resnet18 = vision.resnet18_v1(pretrained=True)

mx.test_utils.download('http://data.mxnet.io/data/val_256_q90.rec', 'data/val_256_q90.rec')

batch_size = 16
mean_std = {'mean_r': 123.68, 'mean_g': 116.779, 'mean_b': 103.939,
            'std_r': 58.393, 'std_g': 57.12, 'std_b': 57.375}

data = mx.io.ImageRecordIter(path_imgrec='data/val_256_q90.rec',
                             batch_size=batch_size,
                             data_shape=batch_shape[1:],
                             rand_crop=False,
                             rand_mirror=False,
                             shuffle=False,
                             **mean_std)
data.batch_size = batch_size

eval_samples = batch_size*10

def eval_func(model):
    data.reset()
    metric = mx.metric.Accuracy()
    for i, batch in enumerate(data):
        if i * batch_size >= eval_samples:
            break
        x = batch.data[0].as_in_context(mx.cpu())
        label = batch.label[0].as_in_context(mx.cpu())
        outputs = model.forward(x)
        metric.update(label, outputs)
    return metric.get()[1]

from neural_compressor.experimental import Quantization
quantizer = Quantization("./cnn.yaml")
quantizer.model = resnet18
quantizer.calib_dataloader = data
quantizer.eval_func = eval_func
qnet = quantizer.fit().model
"""
RESNET50 = """\
import mxnet as mx
from mxnet.gluon.model_zoo.vision import resnet50_v2
from mxnet.gluon.data.vision import transforms
from mxnet.contrib.quantization import quantize_net

rgb_mean = (0.485, 0.456, 0.406)
rgb_std = (0.229, 0.224, 0.225)
batch_size = 64
num_calib_batches = 9
dataset = mx.gluon.data.vision.ImageRecordDataset('../imagenet/rec/val.rec')
dataset = dataset.take(num_calib_batches * batch_size)
transformer = transforms.Compose([transforms.Resize(256),
                                  transforms.CenterCrop(224),
                                  transforms.ToTensor(),
                                  transforms.Normalize(mean=rgb_mean, std=rgb_std)])
val_data = mx.gluon.data.DataLoader(
    dataset.transform_first(transformer, lazy=False), batch_size, shuffle=False)
val_data.batch_size = batch_size

net = resnet50_v2(pretrained=True)

def eval_func(model):
  metric = mx.gluon.metric.Accuracy()
  for x, label in val_data:
    output = model(x)
    metric.update(label, output)
  accuracy = metric.get()[1]
  return accuracy


from neural_compressor.experimental import Quantization
quantizer = Quantization("resnet50v2_mse.yaml")
quantizer.model = net
quantizer.calib_dataloader = val_data
quantizer.eval_func = eval_func
qnet_inc = quantizer.fit().model
print("INC finished")
qnet_inc.export("__quantized_with_inc")
print(quantizer.strategy.best_qmodel.q_config['quant_cfg'])
"""
RECOVER = """\
import glob
import mxnet as mx
import numpy as np

f32_model = mx.gluon.SymbolBlock.imports('hard-symbol.json', ['data'], 'hard-0000.params')
snapshot = sorted(glob.glob('nc_workspace/*/history.snapshot'))[-1]
x = mx.nd.array(np.load('images.npy'))

from neural_compressor.utils.utility import recover
quantized_model = recover(f32_model, snapshot, 0).model
np.save('recovered.npy', quantized_model(x).asnumpy())
"""
# As MXNet's example does it: each strategy by its name, and every model exported. Its calls of `quantize_net` need
# MXNet 2, and use nothing of Neural Compressor.
TUNING = """\
import logging
logging.disable(logging.INFO)

import time
import mxnet as mx
from mxnet.gluon.model_zoo.vision import resnet50_v2
from mxnet.gluon.data.vision import transforms
from mxnet.contrib.quantization import quantize_net
import custom_strategy

def save_model(net, description, time_spend):
  save_model.count += 1
  print("{:21s} tuned in {:8.2f}s".format(description, time_spend))
  net.export("__resnet50_v2_{:02}_".format(save_model.count) + description.replace(' ', '_'))

save_model.count = 0
rgb_mean = (0.485, 0.456, 0.406)
rgb_std = (0.229, 0.224, 0.225)
batch_size = 64
num_calib_batches = 9
dataset = mx.gluon.data.vision.ImageRecordDataset('../imagenet/rec/val.rec')
dataset = dataset.take(num_calib_batches * batch_size)
transformer = transforms.Compose([transforms.Resize(256),
                                  transforms.CenterCrop(224),
                                  transforms.ToTensor(),
                                  transforms.Normalize(mean=rgb_mean, std=rgb_std)])
val_data = mx.gluon.data.DataLoader(
    dataset.transform_first(transformer, lazy=False), batch_size, shuffle=False)
val_data.batch_size = batch_size
net = resnet50_v2(pretrained=True)
net.hybridize(static_alloc=True, static_shape=True)
net(next(iter(val_data))[0])
save_model(net, "fp32", 0.0)

def eval_func(model):
  metric = mx.gluon.metric.Accuracy()
  for x, label in val_data:
    output = model(x)
    metric.update(label, output)
  return metric.get()[1]

from neural_compressor.experimental import Quantization
quantizer = Quantization("resnet50v2_mse.yaml")
quantizer.model = net
quantizer.calib_dataloader = val_data
quantizer.eval_func = eval_func
for strategy in ['mse', 'mycustom', 'bayesian']:
  quantizer.cfg.tuning.strategy.name = strategy
  start = time.time()
  qnet_inc = quantizer.fit().model
  save_model(qnet_inc, "INC " + strategy, time.time() - start)
  print(strategy, quantizer.strategy.best_qmodel.q_config['quant_cfg'])
"""
MEASUREMENT = """\
import glob
import time
import mxnet as mx
from mxnet.gluon.data.vision import transforms

transformer = transforms.Compose([transforms.Resize(256),
                                  transforms.CenterCrop(224),
                                  transforms.ToTensor(),
                                  transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))])
dataset = mx.gluon.data.vision.ImageRecordDataset('../imagenet/rec/val.rec')
val_data = mx.gluon.data.DataLoader(dataset.transform_first(transformer, lazy=False), 64, shuffle=False)
for symbol in sorted(glob.glob('__resnet50_v2_*-symbol.json')):
  net = mx.gluon.SymbolBlock.imports(symbol, ['data'], symbol.replace('-symbol.json', '-0000.params'))
  net.hybridize(static_alloc=True, static_shape=True)
  acc_top1, acc_top5 = mx.gluon.metric.Accuracy(), mx.metric.TopKAccuracy(5)
  start = time.time()
  for x, label in val_data:
    output = net(x)
    acc_top1.update(label, output)
    acc_top5.update(label, output)
  name = symbol.replace('__resnet50_v2_', '').replace('-symbol.json', '').replace('_', ' ')
  print('{:21} Top1 Accuracy: {:.4f} Top5 Accuracy: {:.4f} in {:8.2f}s'.format(
      name, acc_top1.get()[1], acc_top5.get()[1], time.time() - start))
"""
# In a tensor with a larger outlier, mean errors do not show the others to the strategy above.
MILDER = 100.0
SMALLER = {"Resize(256)": "Resize(32)", "CenterCrop(224)": "CenterCrop(32)", "mx.gluon.metric": "mx.metric"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the scripts find: both networks, the images, and the files of settings."""
    made = tmp_path_factory.mktemp("tutorial") / "work"
    made.mkdir()
    net = resnet.trained(layers=(1, 1), epochs=4, few=True)
    net.export(str(made / "fine"))
    resnet.plant(net)
    net.export(str(made / "hard"))
    resnet.plant(net, MILDER / resnet.OUTLIER)
    net.export(str(made / "milder"))
    _, _, images, labels = resnet.digits()
    for path in (made / "data" / "val_256_q90", made.parent / "imagenet" / "rec" / "val"):
        write_records(path, images, labels)
    np.save(made / "images.npy", images[:64])
    (made / "cnn.yaml").write_text(CNN_YAML)
    (made / "resnet50v2_mse.yaml").write_text(RESNET_YAML)
    return made


def write_records(path: Path, images: Any, labels: Any) -> None:
    """MXNet's own format, with pictures that become the network's inputs when they are read and normalised."""
    path.parent.mkdir(parents=True)
    file = mx.recordio.MXIndexedRecordIO(f"{path}.idx", f"{path}.rec", "w")
    for at, (image, label) in enumerate(zip(images, labels, strict=True)):
        pixels = np.clip(np.rint(np.moveaxis(image, 0, -1) * DEVIATION + MEAN), 0, 255).astype(np.uint8)
        file.write_idx(at, mx.recordio.pack(mx.recordio.IRHeader(0, float(label), at, 0), bitmap(pixels)))
    file.close()


def bitmap(pixels: Any) -> bytes:
    """A picture as a BMP file, which needs no library."""
    height, width, _ = pixels.shape
    body = pixels[::-1, :, ::-1].tobytes()
    return b"BM" + struct.pack("<4I2i2H6I", 54 + len(body), 0, 54, 40, width, height, 1, 24, *(0,) * 6) + body


def ran(script: str, folder: Path, smaller: dict[str, str] | None = None) -> str:
    """What a script prints when its import of Neural Compressor is changed, and what stands for the large files."""
    changes = {**({IMPORT: BRIDGE} if IMPORT in script else {}), **(smaller or {})}
    if np.lib.NumpyVersion(np.__version__) >= "1.24.0":  # Python 3.12: MXNet's own import line has to change, too
        changes["import mxnet as mx\n"] = "from quaver.adapters.mxnet import mxnet as mx\n"
    for old, new in changes.items():
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    path = folder / "script.py"
    path.write_text(script)
    told = subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stderr
    return told.stdout + told.stderr


def network(name: str) -> str:
    """The line that loads one of the folder's networks."""
    return f"mx.gluon.SymbolBlock.imports('{name}-symbol.json', ['data'], '{name}-0000.params')"


def test_a_good_network_ends_at_the_first_configuration_of_cnn_yaml(folder: Path) -> None:
    told = ran(
        RESNET18 + "print(qnet.result.evaluations, quantizer.strategy.best_qmodel.q_config['quant_cfg'])\n",
        folder,
        {"vision.resnet18_v1(pretrained=True)": network("fine"), "(1, 3, 224, 224)": "(1, 3, 32, 32)"},
    )
    assert "2 {'excluded_symbols': []," in told
    assert "with strategy basic" in told


def test_mse_excludes_the_harmful_op_and_any_trial_is_recovered(folder: Path) -> None:
    told = ran(
        RESNET50,
        folder,
        {
            "resnet50_v2(pretrained=True)": network("hard"),
            "Resize(256)": "Resize(32)",
            "CenterCrop(224)": "CenterCrop(32)",
            "num_calib_batches = 9": "num_calib_batches = 7",
            "mx.gluon.metric": "mx.metric",
        },
    )
    assert "with strategy mse" in told
    assert "INC finished\n{'excluded_symbols': [" in told
    assert resnet.GUILTY in told.partition("INC finished")[2]
    x = mx.nd.array(np.load(folder / "images.npy"))
    exported = [str(folder / f"__quantized_with_inc-{end}") for end in ("symbol.json", "0000.params")]
    best = mx.gluon.SymbolBlock.imports(exported[0], ["data"], exported[1])(x).asnumpy()
    fp32 = mx.gluon.SymbolBlock.imports(str(folder / "hard-symbol.json"), ["data"], str(folder / "hard-0000.params"))
    wanted = fp32(x).asnumpy().argmax(1)
    assert (best.argmax(1) == wanted).mean() > 0.95
    ran(RECOVER, folder)
    assert (np.load(folder / "recovered.npy").argmax(1) == wanted).mean() < 0.8  # all in int8


def test_the_strategies_by_name_and_one_of_ones_own_are_measured_by_mxnet_alone(folder: Path) -> None:
    """Each strategy excludes the guilty op, and the exported models have the accuracy of fp32."""
    (folder / "custom_strategy.py").write_bytes(Path(mxnet_custom_strategy.__file__).read_bytes())
    (folder / "resnet50v2_mse.yaml").write_text(RESNET_YAML.replace("max_trials: 500", "max_trials: 8"))
    smaller = {"resnet50_v2(pretrained=True)": network("milder"), "num_calib_batches = 9": "num_calib_batches = 7"}
    told = ran(TUNING, folder, {**SMALLER, **smaller})
    for strategy in ("mse", "mycustom", "bayesian"):
        (line,) = (line for line in told.splitlines() if line.startswith(f"{strategy} {{"))
        assert resnet.GUILTY in line
        assert "'quantize_mode': 'smart', 'quantize_granularity': 'tensor-wise'}" in line
    lines = [line for line in ran(MEASUREMENT, folder, SMALLER).splitlines() if "Top1" in line]
    top1 = {line[3:].split(" Top1")[0].strip(): float(line.split("Accuracy: ")[1].split()[0]) for line in lines}
    assert len(top1) == 4 and min(top1.values()) > 0.97 * top1["fp32"]

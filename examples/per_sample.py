"""The score of each sample, batch by batch: hopeless trials end early, each digit has a limit, other data confirm."""

import quaver
from quaver.demo.data import digits
from quaver.demo.run import MODEL

train, train_labels, images, labels = digits()
held_out, held_out_labels = train[600:], train_labels[600:]


def right(model):
    """Which test images a model gets right, in batches; quaver stops asking when the verdict is known."""
    for first in range(0, len(images), 32):
        batch = slice(first, first + 32)
        yield model(images[batch]).argmax(axis=1) == labels[batch]


def right_elsewhere(model):
    """The same on images that take no part in choosing."""
    return model(held_out).argmax(axis=1) == held_out_labels


result = quaver.fit(
    MODEL,
    calib_dataloader=train[:256],
    eval_func=right,
    confirm=right_elsewhere,
    relative=0.01,
    slices=[f"digit {label}" for label in labels],
    slice_limit=0.05,
    op_type_dict={"Conv": {"weight": {"granularity": ["per_tensor"]}}},
)
print(result)
print(f"confirmed: {result.confirmed}; the limit that is nearest: {result.losses[0].limit.name or 'all images'}")

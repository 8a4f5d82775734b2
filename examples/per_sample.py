"""Return per-sample scores: hopeless trials stop early, each digit has a limit, other data confirm the winner."""

import quaver
from quaver.demo.data import digits
from quaver.demo.run import MODEL

train, train_labels, images, labels = digits()
held_out, held_out_labels = train[600:], train_labels[600:]


def correct(model):
    """Yield which test images the model classifies correctly; quaver stops early if the verdict is clear."""
    for first in range(0, len(images), 32):
        batch = slice(first, first + 32)
        yield model(images[batch]).argmax(axis=1) == labels[batch]


def correct_on_held_out(model):
    """Return which held-out images the model classifies correctly."""
    return model(held_out).argmax(axis=1) == held_out_labels


result = quaver.fit(
    MODEL,
    calib_dataloader=train[:256],
    eval_func=correct,
    confirm=correct_on_held_out,
    relative=0.01,
    slices=[f"digit {label}" for label in labels],
    slice_limit=0.05,
    op_type_dict={"Conv": {"weight": {"granularity": ["per_tensor"]}}},
)
print(result)
print(f"confirmed: {result.confirmed}; the nearest limit: {result.losses[0].limit.name or 'all images'}")

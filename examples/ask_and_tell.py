"""Drive a run with your own loop: ask for a trial, score it, tell its score. The rest is as with `fit`."""

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES

train, _, images, labels = digits()
accuracy = Accuracy(images, labels)

with quaver.open_run(MODEL, calib_dataloader=train[:256], op_type_dict=RULES, objective="size", relative=0.01) as run:
    while (trial := run.ask()) is not None:  # trial 0 is the fp32 model
        score = accuracy(trial.model)
        print(f"trial {trial.number} scores {score:.4f}")
        run.tell(trial, score)
    result = run.result()
print(result)

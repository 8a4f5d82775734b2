"""Find the ops that ruin a network in int8 from two tables, and keep them in fp32 with one rule."""

import csv

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES

train, _, images, labels = digits()
data = {"calib_dataloader": train[:256], "eval_func": Accuracy(images, labels), "max_trials": 1, "strategy": "basic"}


def table(name):
    """Return the rows of a table in the workspace."""
    with open(result.workspace / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def spread(row, low, high):
    """Return the distance from the smallest to the largest value."""
    return float(row[high]) - float(row[low])


# All ops in int8, with one weight scale per layer.
result = quaver.fit(MODEL, op_type_dict=RULES, diagnosis=True, **data)
print(f"fp32 accuracy = {result.baseline:.4f}, int8 accuracy = {result.best.score:.4f}\n{result}")

print("\nActivations summary, the largest min-max range first")
activations = table("activations_table.csv")
for row in sorted(activations, key=lambda row: -spread(row, "Activation min", "Activation max"))[:5]:
    print(f"  {spread(row, 'Activation min', 'Activation max'):8.2f}  MSE {float(row['MSE']):8.4f}  {row['OP name']}")

print("\nWeights summary, the largest min-max range first")
weights = table("weights_table.csv")
for row in sorted(weights, key=lambda row: -spread(row, "Input model min", "Input model max"))[:8]:
    print(f"  {spread(row, 'Input model min', 'Input model max'):8.2f}  MSE {float(row['MSE']):8.4f}  {row['OP name']}")

print("\nThe activations are similar, but the weights of some depthwise convolutions have a wide range. The cause:")
print(f"  {result.diagnosis.causes[0]}")

# Keep these ops in fp32.
rule = {r"/features/features.\d+/depthwise/.*": quaver.FP32}
result = quaver.fit(MODEL, op_type_dict=RULES, op_name_dict=rule, **data)
print(f"\nfp32 accuracy = {result.baseline:.4f}, int8 accuracy = {result.best.score:.4f}\n{result}")

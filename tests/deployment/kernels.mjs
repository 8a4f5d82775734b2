// Prints the profile of one inference, from which the test reads the kernels: node kernels.mjs MODEL INPUTS
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-web";

const [model, file] = process.argv.slice(2);
const feeds = {};
for (const [name, { type, dims, data }] of Object.entries(JSON.parse(readFileSync(file, "utf8"))))
  feeds[name] = new ort.Tensor(type, type === "int64" ? BigInt64Array.from(data, BigInt) : Float32Array.from(data), dims);
ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(readFileSync(model), { enableProfiling: true });
await session.run(feeds);
session.endProfiling();

"""OpenVINO with the float model and nothing else. The variant is the precision of the float kernels: f32 or bf16."""

from __future__ import annotations

import shutil
from functools import partial

from benchmarks.peers import job as jobs
from benchmarks.peers.openvino_session import OpenVinoSession


def main() -> None:
    """Evaluate the float model, and again in the other precision."""
    job = jobs.read()
    source, shapes = job.bench.model_path, jobs.fixed_shapes(job.bench)
    jobs.plain_inference(job, OpenVinoSession(source, shapes=shapes))

    def work() -> None:
        jobs.Recorder(job, partial(OpenVinoSession, shapes=shapes))(source)
        if job.variant != "f32":
            jobs.Recorder(job, partial(OpenVinoSession, precision=job.variant, shapes=shapes))(source)

    jobs.tuning(job, work)
    shutil.copyfile(source, job.target)
    jobs.report(job, job.target)


if __name__ == "__main__":
    main()

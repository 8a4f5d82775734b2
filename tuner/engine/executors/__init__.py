"""Who evaluates: this process, processes beside it, or a cluster. The seam is `submit(task) -> Future`."""

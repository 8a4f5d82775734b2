"""Read and write files safely: paths, atomic writes, temporary folders."""

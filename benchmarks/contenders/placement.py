"""Each thread of a peer on a core of its own, as ours are: a scheduler may leave two on one."""

from __future__ import annotations

import os


def place_openmp() -> None:
    """Tell OpenMP before torch loads it. Not for other libraries: where OpenMP is merely loaded it
    would bind the main thread, and so all threads that another pool starts, to one core."""
    cores = sorted(os.sched_getaffinity(0))
    places = ",".join(f"{{{core}}}" for core in cores)
    os.environ |= {"OMP_PROC_BIND": "true", "OMP_PLACES": places}


def onnxruntime_options(threads: int) -> object:
    """Options of a session: every optimization, a core for each thread that it starts, counted
    from 1; the caller has the first."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    if threads > 1:
        cores = sorted(os.sched_getaffinity(0))
        places = ";".join(str(core + 1) for core in cores[1:threads])
        options.add_session_config_entry("session.intra_op_thread_affinities", places)
    return options

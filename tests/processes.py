"""Processes that work together, forked from one in which everything that takes long to import is imported already."""

from torch import multiprocessing as mp

SERVER = ["metacal.lab.engines.local"]
"""What that process imports: the same as for the workers of an engine, so that there is one for both."""


def run_together(work, *args, processes):
    """Run ``work(rank, *args)`` in each; a failure in one ends the others and is raised."""
    mp.get_context("forkserver").set_forkserver_preload(SERVER)
    mp.start_processes(work, args=args, nprocs=processes, start_method="forkserver")

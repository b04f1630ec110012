"""Workers in processes of this machine: forked from a template, watched, and ended with the run.

The engine moves frames and reports losses. It may not know Ray, open a port, unpickle what a worker
sends, or decide about draws and restarts: that is left to the supervisor.
"""

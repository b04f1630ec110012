"""Where workers live: in virtual time, in processes of this machine, on a cluster.

`workers` is what runs beside the rows, the same everywhere. `processes`, `ray` and `virtual` are
the engines that run it, and `submitting` writes what a cluster is given. Engines know no scheme.
"""

"""Runs in virtual time: an event heap in place of clocks and processes.

Computing times come from a latency model. Nothing here may read a real clock, start a process or
thread, or decide about draws: that is left to the coordinator.
"""

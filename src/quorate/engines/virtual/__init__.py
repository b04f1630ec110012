"""Runs in virtual time: an event heap in place of clocks and processes."""

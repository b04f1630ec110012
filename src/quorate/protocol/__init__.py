"""The protocol: schemes, codes, coordinator and supervisor. Pure: no clock, no process, no file."""

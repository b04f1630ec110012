"""One run from its settings to its result: the loop, its stopping, history, view and check.

Work before and after a run, resuming and updating live here too. Nothing here may know where
workers live: engines are reached only by their options and by messages.
"""

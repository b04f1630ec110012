"""One run from its settings to its result: the loop, its journal, its history and its check."""

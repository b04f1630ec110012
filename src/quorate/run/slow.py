"""Who was slow in a run, as its journal tells: for the report and the live page."""

from quorate.results.summary import slow_in_words
from quorate.run.blocks import Blocks
from quorate.run.history import History


def slow_workers(history: History, blocks: Blocks) -> list[str]:
    """The words of the console for a worker that sent much less than the others; none if none."""
    sent = [len(blocks.of(k)) for k in range(history.n_workers)]
    spoken_for = () if history.passes is None else history.passes.spoken_for
    return slow_in_words(sent, history.gone(), history.settings.chosen_method, spoken_for)

"""Numbers of things in sentences."""


def counted(n: int, noun: str) -> str:
    """`1 row`, `2 rows`: for nouns whose plural ends in s."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def do_not_fill(n: int, noun: str, n_shards: int) -> str:
    """The message for fewer rows or groups than shards."""
    do = "does" if n == 1 else "do"
    shards, most = counted(n_shards, "shard"), counted(n, "shard")
    return f"{counted(n, noun)} {do} not fill {shards}. Use at most {most}."

"""Parquet files that workers reach themselves: on a shared disk, or at a URL such as s3://lake/x.

An address is the absolute path of a file, or a URL that pyarrow's filesystems know: `s3://`,
`gs://`, `hdfs://`, `file://`. Options of a filesystem follow a question mark, as in
`s3://lake/x.parquet?region=eu-west-1`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from quorate._extras import load
from quorate.data.files import find_files, open_parquet, reading, require_once
from quorate.errors import BadInputError, require

_ENDINGS = (".parquet", ".pq")
_WILD = "*"
_SECRETS = ("secret", "password", "token", "access_key", "account_key", "signature")


def is_url(address: object) -> bool:
    """Whether this is the URL of a file or of many."""
    return isinstance(address, str) and "://" in address


def addresses_of(given: object) -> tuple[str, ...]:
    """Addresses of the Parquet files of a path, folder, pattern or URL, or of a list of them."""
    if isinstance(given, list | tuple):
        listed = tuple(address for one in given for address in addresses_of(one))
        require_once(listed)
        return listed
    require(
        isinstance(given, str | Path),
        f"Rows that stay in place lie in Parquet files, not in a {type(given).__name__}. Give "
        "their path, a glob pattern or a URL.",
    )
    if is_url(given):
        require_no_secret(str(given))
        found = _at_url(str(given))
    else:
        found = [str(path.resolve()) for path in find_files(str(given))]
    for address in found:
        require(
            urlsplit(address).path.lower().endswith(_ENDINGS),
            f"{address} is no Parquet file, and rows stay in place only in Parquet files. Write it "
            "as .parquet, or let rows be shuffled.",
        )
    return tuple(found)


def require_no_secret(address: str) -> None:
    """Refuse a URL with a password or a key: the folder of a run keeps addresses as they are."""
    parts = urlsplit(address) if is_url(address) else urlsplit("")
    has_key = any(_is_secret(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    before, at, place = f"{parts.netloc}{parts.path}".rpartition("@")
    require(
        not has_key and not (at and ":" in before),
        f"The URL of {parts.scheme}://{place} holds a secret "
        "(a key, a password or a token), which the folder of the run would keep. Leave it out, and "
        "give it to all workers by their environment, such as AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY.",
    )


def _is_secret(option: str) -> bool:
    return option.lower() == "sig" or any(word in option.lower() for word in _SECRETS)


@contextmanager
def opened(address: str) -> Iterator[Any]:
    """The Parquet file at an address; errors of reading name it."""
    with reading(address):
        if not is_url(address):
            with open_parquet(address) as file:
                yield file
            return
        filesystem, path = _filesystem(address)
        with filesystem.open_input_file(path) as source, open_parquet(source) as file:
            yield file


def _filesystem(url: str) -> tuple[Any, str]:
    """The filesystem of a URL, and the path within it."""
    arrow = load("pyarrow", "data")
    try:
        filesystem, path = load("pyarrow.fs", "data").FileSystem.from_uri(url)
    except (arrow.ArrowException, ValueError) as error:
        raise BadInputError(
            f"{url} is no address that pyarrow knows ({error}). Use s3://, gs:// or a path."
        ) from None
    return filesystem, path


def _at_url(url: str) -> list[str]:
    """URLs of the Parquet files that a URL, a folder or a pattern stands for, sorted."""
    parts = urlsplit(url)
    folder = parts.path.partition(_WILD)[0].rpartition("/")[0] if _WILD in parts.path else None
    base = url if folder is None else parts._replace(path=folder or "/").geturl()
    filesystem, path = _filesystem(base)
    with reading(url):
        paths = _paths(filesystem, path, folder is not None)
    if folder is not None:
        pattern = path.rstrip("/") + unquote(parts.path)[len(unquote(folder)) :]
        paths = [each for each in paths if _matches(each, pattern)]
    require(bool(paths), f"No file found at {url!r}. Give a Parquet file, a folder or a pattern.")
    user, at, _ = parts.netloc.rpartition("@")
    options = f"?{parts.query}" if parts.query else ""
    # Paths of an object store begin with the bucket, where the URL has the host of other stores
    starts = {True: f"{parts.scheme}://{parts.netloc}", False: f"{parts.scheme}://{user}{at}"}
    return [f"{starts[each.startswith('/')]}{quote(each)}{options}" for each in sorted(paths)]


def _matches(path: str, pattern: str) -> bool:
    """Whether a path is one of a pattern, in which `*` stands for no slash and `**` for any."""
    deep = "**" in pattern
    return fnmatchcase(path, pattern) and (deep or path.count("/") == pattern.count("/"))


def _paths(filesystem: Any, path: str, within: bool) -> list[str]:
    """A file as it is; all files within a folder, or the Parquet files directly in it."""
    fs = load("pyarrow.fs", "data")
    if not within and filesystem.get_file_info(path).type != fs.FileType.Directory:
        return [path]
    listed = filesystem.get_file_info(fs.FileSelector(path, recursive=within))
    files = [info.path for info in listed if info.type == fs.FileType.File]
    return files if within else [each for each in files if each.lower().endswith(_ENDINGS)]

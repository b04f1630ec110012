"""The live page: who is let in, what is shown, and that it only reads."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from helpers import browser, journals
from helpers.journals import block, happened
from helpers.live_client import Client, served
from quorate.cli import main
from quorate.errors import BadInputError, MissingExtraError
from quorate.journal import Finished, Journal, Started
from quorate.live import beside, writer
from quorate.live.server import LiveServer
from quorate.live.view import LiveView
from quorate.run.history import History

NASTY = "</script><script>alert(1)</script>"
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np, quorate
from helpers.processes import MeanModel
z = np.random.default_rng({seed}).normal([1.0, -2.0], size=(400, 2))
rows = {{"z": z, "row": np.arange(400)}}
options = dict(workers=2, scheme="cmc", draws=10**7, sampler="ellipse", run_dir={run!r})
tell = lambda now: print(now.draws, flush=True)
result = quorate.sample(MeanModel(), rows, progress=tell, **options)
print(result.stopped)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    records = [
        *(block(1.0 + i, 0, n=4, first=4 * i) for i in range(8)),
        block(2.5, 1, n=4),
        happened(5.0, "lost", 1, "ended by signal 9\nand more"),
        happened(6.0, "restarted", 1),
    ]
    return journals.write(tmp_path_factory.mktemp("run"), records, names=("a", NASTY))


@pytest.fixture(scope="module")
def client(run):
    with served(run) as client:
        yield client


def contents(folder):
    """All files but those that SQLite needs to share a file, and the bytes in them."""
    return {
        path.name: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not (path.name.endswith("-shm") or path.stat().st_size == 0)
    }


# ---------------------------------------------------------------- who is let in


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["", "state", "stop", "page.js", "page.css", "nothing"])
def test_nobody_is_let_in_without_the_token(client, method, path):
    token = client.token
    wrong = ["", "x/", "%C3%A9/", f"{token[:-1]}/", f"{token}x/", f"x/{token}/", f"/{token}/"]
    for before in [*wrong, token.lower() + "/"]:
        given = {"Origin": client.origin, "Cookie": f"token={token}", "Authorization": token}
        answer, body = client.ask(f"/{before}{path}", method, **given)
        assert answer.status == 403
        assert body in (b"", b"The token is missing from the address.")
    assert client.status(f"/{path}?token={token}", method) == 403


def test_with_the_token(client):
    for path, kind in {
        "": "text/html",
        "page.js": "text/javascript",
        "page.css": "text/css",
    }.items():
        answer, body = client.ask(client.path + path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kind)
        assert body
    assert client.status(f"{client.path}nothing") == 404
    assert client.status(f"{client.path}../../etc/passwd") == 404
    assert client.status(f"{client.path}stop") == 405
    assert client.status(f"{client.path}state", "POST") == 405


def test_every_answer_keeps_the_address_to_itself(client):
    for path in ("/", client.path, f"{client.path}state", f"{client.path}nothing"):
        headers = client.ask(path)[0].headers
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "http" not in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert "set-cookie" not in headers
        assert "server" not in headers


def test_the_page_asks_nobody_else(client):
    for name in ("", "page.js", "page.css"):
        text = client.ask(client.path + name)[1].decode()
        assert "//" not in text.replace("// ", "")
        assert "innerHTML" not in text
        assert client.token not in text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_another_name_for_this_machine_is_refused(client, host):
    assert client.status(f"{client.path}state", Host=host) == 400
    assert client.status(f"{client.path}state", Host=f"localhost:{client.port}") == 200


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
def test_it_listens_on_loopback_only(client):
    listening = "0A"
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if Path(table).exists():
            for line in Path(table).read_text().splitlines()[1:]:
                address, port = line.split()[1].split(":")
                if int(port, 16) == client.port and line.split()[3] == listening:
                    found.append(address)
    assert found == ["0100007F"]


def test_addresses_differ(run):
    with served(run) as one, served(run) as other:
        assert one.token != other.token
        assert len(one.token) >= 32
        assert other.status(f"{one.path}state") == 403


def test_a_port_in_use_is_told(run, client):
    with pytest.raises(BadInputError, match=f"port {client.port}.*Choose another"):
        LiveServer(run, client.port)


# ---------------------------------------------------------------- what is shown


def test_what_is_shown_of_a_run(client):
    state = client.state()
    assert state["status"] == "ended"
    assert state["reason"] == "done"
    assert not state["can_stop"]
    assert (state["draws"], state["target"], state["seconds"]) == (36, 40, 8.0)
    first, second = state["lanes"]
    assert first["shards"] == [0, 1]
    assert first["draws"] == 64
    assert [span[:2] for span in first["spans"]] == [[float(i), 1.0 + i] for i in range(8)]
    assert second["marks"] == [[5.0, "lost"], [6.0, "restarted"]]
    assert state["cells"] == [[0, 1]]
    assert [event["text"] for event in state["events"] if event["what"] == "lost"] == [
        "ended by signal 9"
    ]


def test_parameters_are_those_of_the_merge(run, client):
    with History(run) as history:
        history.read()
    draws, state = history.global_draws(), client.state()
    shown = state["parameters"]
    assert state["ess"] == history.view.least_ess() > 0
    assert [parameter["name"] for parameter in shown] == ["a", NASTY]
    for i, parameter in enumerate(shown):
        assert parameter["mean"] == pytest.approx(draws[:, i].mean())
        assert parameter["sd"] == pytest.approx(draws[:, i].std(ddof=1))
        assert parameter["mcse"] == pytest.approx(parameter["sd"] / parameter["ess"] ** 0.5)
        assert parameter["ess"] == history.view.ess()[i]
        assert parameter["means"][-1] == pytest.approx(parameter["mean"])
    weights, shards = history.view.weights(), history.view.shard_draws()
    half = state["shares"].index(0.5)
    ahead = [of[: len(of) // 2].mean(axis=0) - of.mean(axis=0) for of in shards]
    expected = draws.mean(axis=0) + sum(w @ gap for w, gap in zip(weights, ahead, strict=True))
    np.testing.assert_allclose([p["means"][half] for p in shown], expected)
    assert state["times"][half] == 5.0  # 20 of 36 draws; 16 were there at 4 s


def test_a_run_that_is_being_written(tmp_path):
    folder, now = tmp_path / "run", [0.0]
    settings = {"scheme": "cmc", "draws": 4_000, "until": "ess:50", "redundancy": 1}
    view = LiveView(folder, lambda: now[0])

    def look():
        now[0] += 1.0
        return view.look()

    def statuses():
        return [lane["status"] for lane in look()["lanes"]]

    assert look()["status"] == "not begun"
    with Journal.create(folder, journals.configuration(**settings)) as journal:
        journal.append([Started(0.0)])
        state = look()
        assert (state["status"], state["reason"]) == ("running", None)
        assert state["can_stop"]
        assert state["parameters"] == []
        assert statuses() == ["starting", "starting"]
        for i in range(5):
            journal.append([of_shard(1.0 + i, k, first=100 * i) for k in (0, 1)])
            state = look()
            assert state["draws"] == 100 * (i + 1)
            assert state["seconds"] == 1.0 + i
            assert statuses() == ["working", "working"]
        assert state["seconds_left"] == pytest.approx((4_000 - 500) / (400 / 4.0))
        assert state["ess"] > 50
        assert len(state["parameters"]) == 2
        assert look()["seconds"] == 5.0 + 2.0  # nothing was heard, and time goes on
        journal.append([happened(7.0, "lost", 1)])
        assert statuses() == ["working", "lost"]
        journal.append([happened(8.0, "restarted", 1)])
        assert statuses() == ["working", "restarted"]
        journal.append([happened(8.5, "quarantined", 0)])
        assert statuses() == ["quarantined", "restarted"]
        journal.append([of_shard(8.7, 1, first=500)])
        assert statuses() == ["quarantined", "working"]
        journal.append([Finished(9.0, "enough effective draws")])
    state = look()
    assert [lane["status"] for lane in state["lanes"]] == ["quarantined", "ended"]
    view.close()
    assert (state["status"], state["reason"]) == ("ended", "enough effective draws")
    assert not state["can_stop"]


def test_a_server_goes_along_with_a_run(tmp_path):
    folder = tmp_path / "run"
    with served(folder) as client:
        assert client.state()["status"] == "not begun"
        with Journal.create(folder, journals.configuration(scheme="cmc")) as journal:
            for i in range(2):
                journal.append([of_shard(1.0 + i, k, n=10, first=10 * i) for k in (0, 1)])
                assert any(client.state().get("draws") == 10 * (i + 1) for _ in range(10_000))


def of_shard(time, worker, first, n=100):
    return block(time, worker, n=n, first=first, shards=(worker,), chain=0)


def test_a_run_that_was_killed(tmp_path):
    view = LiveView(journals.write(tmp_path, [block(1.0, 0)], finished=False))
    state = view.look()
    view.close()
    assert state["status"] == "ended"
    assert "no process" in state["reason"]


def test_many_blocks_stay_a_small_answer(tmp_path):
    records = [block(0.01 * i, 0, n=1, first=i) for i in range(3_000)]
    view = LiveView(journals.write(tmp_path, records, draws=5_000))
    lane = view.look()["lanes"][0]
    view.close()
    assert lane["blocks"] == 3_000
    assert len(lane["spans"]) <= 401
    begins, ends, _ = np.array(lane["spans"]).T
    np.testing.assert_array_equal(begins[1:], ends[:-1])
    assert (begins[0], ends[-1]) == (0.0, 29.99)


def test_constant_draws_are_no_trouble(tmp_path):
    blocks = [block(1.0 + i, 0, n=20, first=20 * i) for i in range(2)]
    blocks = [record._replace(payload=np.ones_like(record.payload)) for record in blocks]
    with served(journals.write(tmp_path, blocks, cov_ridge=1.0)) as client:
        answer, body = client.ask(f"{client.path}state")
    assert answer.status == 200
    assert b"NaN" not in body


def test_a_journal_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "journal.sqlite").write_bytes(b"nothing of the kind" * 100)
    view = LiveView(tmp_path)
    state = view.look()
    assert state["status"] == "unreadable"
    assert "is not a journal" in state["trouble"]


def test_nothing_is_written(run, client):
    before = contents(run)
    client.state()
    client.ask(f"{client.path}stop", "POST", Origin=client.origin)
    with served(run) as another:
        another.state()
    assert contents(run) == before


# ---------------------------------------------------------------- stopping


def test_only_the_page_itself_may_stop_a_run(client):
    stop = f"{client.path}stop"
    assert client.status(stop, "POST") == 403
    assert client.status(stop, "POST", Origin="http://evil.example") == 403
    assert client.status(stop, "POST", Origin="null") == 403
    assert client.status(stop, "POST", Origin=f"http://127.0.0.1:{client.port + 1}") == 403
    assert client.status(stop, "POST", Origin=client.origin) == 409  # the run has ended


def test_who_writes(tmp_path):
    folder = journals.write(tmp_path, [])
    assert writer.writer(folder) is None
    with Journal.open(folder):
        assert writer.writer(folder) == os.getpid()
    assert writer.writer(folder) is None
    (folder / "journal.lock").write_text(str(os.getppid()))  # of somebody who does not hold it
    assert writer.writer(folder) is None
    assert not writer.Interrupter(folder).interrupt()
    (folder / "journal.lock").write_text("../1")
    assert writer.writer(folder) is None


def test_a_second_request_sends_no_second_signal(tmp_path, monkeypatch):
    sent = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda _, number: sent.append(number))
    folder = journals.write(tmp_path, [])
    interrupter = writer.Interrupter(folder)
    with Journal.open(folder):
        assert interrupter.interrupt()
        assert interrupter.interrupt()
    assert sent == [signal.SIGINT]
    assert not interrupter.interrupt()


def test_stopping_ends_a_real_run_as_ctrl_c_does(tmp_path, seed):
    folder = tmp_path / "run"
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]), seed=seed, run=str(folder))
    with (
        subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        ) as process,
        served(folder) as client,
    ):
        next(line for line in process.stdout if int(line) > 0)
        state = client.state()
        assert state["status"] == "running"
        assert state["can_stop"]
        assert client.status(f"{client.path}stop", "POST", Origin=client.origin) == 202
        rest, _ = process.communicate()
        assert process.returncode == 0
    assert rest.splitlines()[-1] == "interrupted"
    view = LiveView(folder)
    state = view.look()
    view.close()
    assert (state["status"], state["reason"]) == ("ended", "interrupted")


# ---------------------------------------------------------------- commands


def test_watch_serves_until_interrupted(run):
    command = "from quorate.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "watch", str(run)], stderr=subprocess.PIPE, text=True
    ) as process:
        client = Client(process.stderr.readline().split()[-1])
        assert client.state()["draws"] == 36
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate()
    assert process.returncode == 0
    assert not rest


def test_watch_refuses_what_is_no_run(tmp_path):
    result = CliRunner().invoke(main, ["watch", str(tmp_path)])
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


def test_sample_serves_a_page_as_long_as_it_runs(tmp_path, rng):
    import pandas as pd

    table, folder = tmp_path / "table.csv", tmp_path / "run"
    pd.DataFrame({"x": rng.normal(size=200), "y": rng.normal(size=200)}).to_csv(table, index=False)
    options = ["--workers", "2", "--draws", "200", "--sampler", "ellipse", "--run-dir", str(folder)]
    result = CliRunner().invoke(
        main, ["sample", "--formula", "y ~ x", str(table), "--watch", *options]
    )
    again = CliRunner().invoke(main, ["resume", str(folder), "--draws", "220", "--watch"])
    for ended in (result, again):
        assert ended.exit_code == 0
        [address] = [line.split()[-1] for line in ended.stderr.splitlines() if "Watch it" in line]
        with pytest.raises(ConnectionRefusedError):
            Client(address).state()


def test_resume_refuses_what_is_no_run_before_it_serves_a_page(tmp_path):
    result = CliRunner().invoke(main, ["resume", str(tmp_path / "nothing"), "--watch"])
    assert result.exit_code == 2
    assert "Watch it" not in result.stderr


def test_a_page_beside_a_run_ends_with_it(run):
    addresses = []
    with beside.page_beside(run, addresses.append):
        client = Client(*addresses)
        assert client.state()["reason"] == "done"
    with pytest.raises(ConnectionRefusedError):
        client.state()


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("quorate._extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"quorate\[watch\]"):
        beside.require_extra()


@browser.needed
def test_a_browser_shows_names_as_text(client, tmp_path):
    with browser.opened(tmp_path) as page:
        page.look(f"{client.origin}{client.path}", 1280)
        page.wait_for("document.body.innerText.includes('36 of 40 draws')")
        assert NASTY in page.evaluate("document.body.innerText")
        assert page.evaluate("[...document.scripts].filter(s => !s.src).length") == 0
        assert page.complaints == []

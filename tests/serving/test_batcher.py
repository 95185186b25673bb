"""What the queue hands out, in which order, and what it refuses; without a model and without HTTP."""

from __future__ import annotations

import threading

import pytest

from evenspan.models.batches import plan_batches
from evenspan.serving.batcher import Batcher, ClosedError, QueueFullError, Ticket


class Client:
    """Puts tickets in and remembers what came back."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher, self.answers = batcher, []

    def put(self, role, lengths, name="text") -> Ticket:
        texts = [f"{name} {place}" for place in range(len(lengths))]
        ticket = Ticket(role, texts, lengths, lambda results, error: self.answers.append((results, error)))
        self.batcher.put(ticket)
        return ticket


@pytest.fixture
def batcher() -> Batcher:
    return Batcher(lambda _, lengths: list(plan_batches(lengths, 100)), most_tokens=1000)


@pytest.fixture
def client(batcher) -> Client:
    return Client(batcher)


def work_off(batcher: Batcher) -> list:
    done = []
    while (work := batcher.take(wait=False)) is not None:
        batcher.finished(work, [entry.text.upper() for entry in work.entries], 0.1)
        done.append(work)
    return done


def test_every_request_gets_its_own_results_in_order(batcher, client) -> None:
    client.put("document", [30, 90, 10, 50], "a")
    client.put("document", [20, 60], "b")
    batches = work_off(batcher)
    assert {results[0][0]: len(results) for results, _ in client.answers} == {"A": 4, "B": 2}
    assert all(result.endswith(str(place)) for results, _ in client.answers for place, result in enumerate(results))
    assert all(len(work.entries) * max(entry.tokens for entry in work.entries) <= 100 for work in batches)
    assert batcher.waiting_tokens == 0


def test_texts_of_several_clients_share_a_batch(batcher, client) -> None:
    for name in "abcd":
        client.put("document", [25], name)
    assert [len(work.entries) for work in work_off(batcher)] == [4]


@pytest.mark.parametrize(("in_a_row", "order"), [(4, "qqqqdqqqdd"), (1, "qdqdqdqqqq")])
def test_queries_go_first_and_documents_are_not_forgotten(in_a_row, order) -> None:
    batcher = Batcher(lambda _, lengths: plan_batches(lengths, 100), 1000, in_a_row)
    client = Client(batcher)
    client.put("document", [90] * 3)
    for _ in range(7):
        client.put("query", [90])
    assert "".join(work.role[0] for work in work_off(batcher)) == order


def test_other_work_does_not_hold_up_texts(batcher, client) -> None:
    for _ in range(3):
        batcher.put_job(lambda: None)
    client.put("query", [90] * 2)
    taken = [batcher.take(wait=False) for _ in range(6)]
    assert [work and (work.role or "job") for work in taken] == ["job", "query", "job", "query", "job", None]


def test_the_oldest_text_is_in_the_next_batch(batcher, client) -> None:
    client.put("document", [5], "old")
    client.put("document", [90] * 5, "long")
    assert ("old 0", 5) in [(entry.text, entry.tokens) for entry in batcher.take(wait=False).entries]


def test_a_client_that_leaves_frees_its_place(batcher, client) -> None:
    client.put("document", [90] * 5, "stays")
    left = client.put("document", [90] * 6, "leaves")
    with pytest.raises(QueueFullError):
        client.put("document", [90])
    work = batcher.take(wait=False)
    batcher.cancel(left)
    assert batcher.waiting_tokens == 4 * 90
    client.put("document", [90], "next")
    batcher.finished(work, [entry.text.upper() for entry in work.entries], 0.1)
    work_off(batcher)
    assert sorted(results[0] for results, _ in client.answers) == ["NEXT 0", "STAYS 0"]


def test_a_full_queue_says_when_to_come_back(batcher, client) -> None:
    client.put("document", [100] * 10)
    work_off(batcher)  # 100 tokens in 0.1 seconds
    client.put("document", [1000])
    with pytest.raises(QueueFullError) as refused:
        client.put("query", [1000])
    assert refused.value.retry_after == 1
    client.batcher.cancel(client.put("document", []))


def test_what_is_larger_than_the_queue_is_taken_when_nothing_waits(batcher, client) -> None:
    client.put("document", [5000])
    assert len(work_off(batcher)) == 1


def test_an_error_is_of_one_request_alone(batcher, client) -> None:
    client.put("document", [20, 20], "bad")
    client.put("document", [20], "good")
    work = batcher.take(wait=False)
    batcher.finished(work, [ValueError("bad"), "x", "GOOD"], 0.1)
    assert [(results, type(error)) for results, error in client.answers] == [
        (None, ValueError),
        (["GOOD"], type(None)),
    ]


def test_closing_finishes_what_waits_and_takes_nothing_more(batcher, client) -> None:
    client.put("document", [20])
    batcher.close()
    with pytest.raises(ClosedError):
        client.put("document", [20])
    assert len(work_off(batcher)) == 1
    assert batcher.take(wait=True) is None
    assert len(client.answers) == 1


def test_one_thread_waits_for_many(batcher) -> None:
    received, clients = [], [Client(batcher) for _ in range(8)]

    def work() -> None:
        while (one := batcher.take(wait=True)) is not None:
            received.append(one)
            batcher.finished(one, [entry.text.upper() for entry in one.entries], 0.01)

    worker = threading.Thread(target=work)
    worker.start()
    senders = [
        threading.Thread(target=lambda own=own: [own.put(role, [3, 2]) for role in ("query", "document") * 5])
        for own in clients
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    batcher.close()
    worker.join(30)
    assert not worker.is_alive()
    assert [len(own.answers) for own in clients] == [10] * 8
    assert sum(len(one.entries) for one in received) == 160

from __future__ import annotations

import pytest

from mtl.errors import Refused
from pyspark_mtl.news import News
from tests.support.fake_client import FakeClient, FakeLog

WAIT_S = 0.25
END = {"a": 6}


@pytest.fixture
def news(client: FakeClient) -> News:
    """Of the resource a, which was looked at once and has five contents."""
    client.logs.update(a=FakeLog([b""] * 5))
    news = News(lambda: client, ["a"], None)  # type: ignore[arg-type, return-value]
    assert news.look({}, WAIT_S)["a"].next == 6
    return news


def test_the_second_trigger_without_news_and_more_ask_nothing(news: News, client: FakeClient) -> None:
    assert news.look(END, WAIT_S)["a"].earliest == 1
    client.logs["a"].earliest = 3  # nobody tells of that
    assert [news.look(END, WAIT_S)["a"].earliest for _ in range(3)] == [1, 1, 1]
    assert client.watches == [END]


def test_news_are_told_and_the_next_question_is_another_one(news: News, client: FakeClient) -> None:
    news.look(END, WAIT_S)
    client.logs["a"].bodies.append(b"")
    assert news.look(END, WAIT_S)["a"].next == 7
    assert news.look({"a": 7}, WAIT_S)["a"].next == 7
    assert client.watches == [END, {"a": 7}]


def test_a_broker_that_was_away_is_asked_whether_there_is_news(news: News, client: FakeClient) -> None:
    news.look(END, WAIT_S)
    client.away = True  # it began anew, and nobody has asked the new one yet
    client.logs["a"].bodies.append(b"")
    assert news.look(END, WAIT_S)["a"].next == 7


def test_an_answer_without_news_is_what_is_found_now(news: News, client: FakeClient) -> None:
    news.look(END, WAIT_S)
    client.logs["a"].earliest, client.time_is_up = 3, True
    assert news.look(END, WAIT_S)["a"].earliest == 3
    client.time_is_up = False
    assert news.look(END, WAIT_S)["a"].earliest == 3
    assert client.watches == [END, END]


def test_what_a_batch_within_limits_leaves_is_found_at_once(news: News, client: FakeClient) -> None:
    assert news.look({"a": 3}, WAIT_S)["a"].next == 6
    assert news.look({"a": 5}, WAIT_S)["a"].next == 6
    assert client.watches == []


def test_a_deletion_is_told_and_what_is_gone_is_waited_for(news: News, client: FakeClient) -> None:
    news.look(END, WAIT_S)
    del client.logs["a"]
    assert [news.look(END, WAIT_S) for _ in range(2)] == [{}, {}]
    assert client.patterns == ["a", "a"]
    assert client.watches == [END]
    # It ends before the one that is gone did: no news to a watch.
    client.logs["a"] = FakeLog([b""], incarnation="i2")
    assert news.look(END, WAIT_S)["a"].incarnation == "i2"


def test_who_does_not_say_what_is_known_asks_once(news: News, client: FakeClient) -> None:
    client.logs["a"].bodies.append(b"")
    assert news.look(None, WAIT_S)["a"].next == 7
    assert client.watches == []


def test_a_trigger_that_does_not_wait_leaves_its_question_too(news: News, client: FakeClient) -> None:
    assert news.look(END, 0.0)["a"].next == 6
    assert client.watches == [END]
    client.logs["a"].bodies.append(b"")
    assert news.look(END, 0.0)["a"].next == 7


def test_it_is_silent_while_a_question_stands_without_an_answer(news: News, client: FakeClient) -> None:
    assert not news.is_silent(0.0)  # nothing was left under way
    news.look(END, WAIT_S)
    assert news.is_silent(0.0)
    client.away = True
    assert not news.is_silent(0.0)
    client.away = False
    client.logs["a"].bodies.append(b"")
    assert not news.is_silent(0.0)


def test_other_refusals_are_errors(news: News, client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise Refused(403, "not-permitted", "no")

    monkeypatch.setattr(client, "describe", denied)
    with pytest.raises(Refused, match="no"):
        news.look(END, WAIT_S)

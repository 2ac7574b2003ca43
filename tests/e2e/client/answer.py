# SPDX-License-Identifier: Apache-2.0
"""What one request got, in the same form from every door."""
import asyncio
import dataclasses
import json
import time

from .http import HttpConnection
from .wire import Lost, ProtocolError


@dataclasses.dataclass
class Choice:
    """One answer of several, put together; with `echo` the text and the log probabilities begin with the prompt's."""
    text: str = ""
    token_ids: list = dataclasses.field(default_factory=list)  # drawn
    logprobs: list = dataclasses.field(default_factory=list)  # of each token, None for the first of a prompt
    finish_reason: str = None


@dataclasses.dataclass
class Answer:
    """What `text`, `token_ids` and `finish_reason` are of: choice 0. `choices` has all, by index."""
    door: str
    began: float
    status: int = 0  # of HTTP; of an error object; 200 at `done`; 0: nothing came
    choices: dict = dataclasses.field(default_factory=dict)
    prompt_token_ids: list = None
    usage: dict = None
    model: str = None
    code: str = None  # of the error
    message: str = None
    param: str = None
    retry_after: float = None  # seconds
    queue_length: int = None  # requests that waited when it was refused
    fields: dict = None  # of the HTTP head
    lost: str = None  # how the connection failed, if it did
    notices: list = dataclasses.field(default_factory=list)
    arrivals: list = dataclasses.field(default_factory=list)  # of token events
    finished: float = 0

    def choice(self, index):
        return self.choices.setdefault(index, Choice())

    text = property(lambda self: self.choice(0).text)
    token_ids = property(lambda self: self.choice(0).token_ids)
    finish_reason = property(lambda self: self.choice(0).finish_reason)

    def add(self, index, text, ids, logprobs=()):
        self.arrivals.append(time.monotonic())
        choice = self.choice(index)
        choice.text += text
        choice.token_ids += ids or []
        choice.logprobs += logprobs

    def fail(self, status, code, message, param=None, retry_after_ms=None, queue_length=None):
        self.queue_length = queue_length
        self.status, self.code, self.message, self.param = status, code, message, param
        if retry_after_ms is not None:
            self.retry_after = retry_after_ms / 1000

    @property
    def whole(self):
        return self.status == 200 and self.code is None and self.lost is None and self.finish_reason is not None

    def seconds_per_token(self):
        """Mean time between tokens, from the first to the last."""
        return (self.arrivals[-1] - self.arrivals[0]) / (len(self.arrivals) - 1)

    def outcome(self):
        """One word for counting: the status, or how it broke."""
        if self.lost:
            return f"lost ({self.lost})"
        if self.status == 200 and self.code:
            return f"200, then {self.code}"
        if self.status == 200:
            return "200" if self.finish_reason else "200 without an end"
        return f"{self.status} {self.code}"


def path_of(api):
    return {"completions": "/v1/completions", "chat": "/v1/chat/completions"}[api]


def read_error(answer, status, body):
    error = json.loads(body)["error"]
    for key in ("message", "type", "code"):
        if not isinstance(error.get(key), str):
            raise ProtocolError(f"error.{key} is {error.get(key)!r}")
    answer.fail(status, error["code"], error["message"], error.get("param"), error.get("retry_after_ms"),
                error.get("queue_length"))


def logprobs_of(choice):
    scores = choice.get("logprobs") or {"token_logprobs": []}
    return [one["logprob"] for one in scores["content"]] if "content" in scores else scores["token_logprobs"]


def read_whole(answer, body):
    item = json.loads(body)
    for choice in item["choices"]:
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        answer.choices[choice["index"]] = Choice(text, choice.get("token_ids", []), logprobs_of(choice),
                                                 choice["finish_reason"])
    answer.prompt_token_ids = item.get("prompt_token_ids")
    answer.usage, answer.model = item["usage"], item["model"]


def read_event(answer, data, state):
    """One event of a stream; `state["over"]` is set at [DONE]."""
    if state.get("over"):
        raise ProtocolError(f"an event after [DONE]: {data[:80]}")
    if data == "[DONE]":
        state["over"] = True
        return
    item = json.loads(data)
    if "error" in item:
        read_error(answer, answer.status, data)
        state["over"] = True
        return
    answer.model = item["model"]
    if item.get("usage"):
        answer.usage = item["usage"]
    if item.get("prompt_token_ids") is not None:
        answer.prompt_token_ids = item["prompt_token_ids"]
    for choice in item["choices"]:
        index = choice["index"]
        if answer.choice(index).finish_reason:
            raise ProtocolError("a choice after its finish_reason")
        answer.choice(index).finish_reason = choice["finish_reason"]
        delta = choice.get("delta", choice)
        text = delta.get("text" if delta is choice else "content")
        if choice["finish_reason"] is None and "role" not in delta:
            answer.add(index, text, choice.get("token_ids"), logprobs_of(choice))


async def http_answer(connection, body, api="completions", stream=False, on_event=None):
    """One request on an open connection. A broken connection is noted in the answer, a broken rule raises."""
    answer = Answer("http", began=time.monotonic())
    if stream:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    try:
        await connection.send("POST", path_of(api), body)
        head = await connection.head()
        answer.status, answer.fields = head.status, head.fields
        if head.status == 200 and stream:
            if head.get("content-type") != "text/event-stream":
                raise ProtocolError(f"a stream of type {head.get('content-type')!r}")
            state = {}
            async for data in connection.events(head):
                read_event(answer, data, state)
                if on_event:
                    on_event(answer)
            if not state.get("over"):
                raise ProtocolError("a stream without [DONE]")
        else:
            content = b"".join([piece async for piece in connection.pieces(head)])
            if head.status == 200:
                read_whole(answer, content)
            else:
                read_error(answer, head.status, content)
                if head.get("retry-after") is not None:
                    answer.retry_after = float(head.get("retry-after"))
    except (OSError, Lost) as broken:
        answer.lost = f"{type(broken).__name__}: {broken}"
    answer.finished = time.monotonic()
    return answer


async def http_ask(server, body, api="completions", stream=False, limit_s=600):
    """One request on a connection of its own; one that takes longer than `limit_s` counts as lost."""
    try:
        connection = await HttpConnection.open(server.door("http"))
    except OSError as broken:
        return Answer("http", began=time.monotonic(), lost=f"cannot connect: {broken}")
    try:
        return await asyncio.wait_for(http_answer(connection, body, api, stream), limit_s)
    except asyncio.TimeoutError:
        return Answer("http", began=time.monotonic(), lost=f"no end within {limit_s} s")
    finally:
        connection.close()

"""One request while it is under way: its plan, its instants, what its stream said, how it ended."""

from __future__ import annotations

from array import array

from pytest_tokenwatt.load.kept import KeepingReader
from pytest_tokenwatt.load.stream import StreamReader
from pytest_tokenwatt.records import ErrorClass, RequestProgress, RequestRecord

WARMUP = "warmup"
MEASURED = "measured"
TAIL = "tail"
PHASES = (WARMUP, MEASURED, TAIL)


class Exchange:
    """A request from its scheduled instant to its end; mutable, owned by one worker."""

    __slots__ = (
        "bytes_received", "dropped", "end_s", "error", "error_message", "index", "phase", "planned_input_tokens",
        "planned_output_tokens", "request", "reused", "scheduled_s", "sent_s", "status", "stream",
    )  # fmt: skip

    def __init__(
        self, phase: str, index: int, scheduled_s: float, tokens: tuple[int, int], request: bytes, *, keep: bool = False
    ) -> None:
        self.phase = phase
        self.index = index
        self.scheduled_s = scheduled_s
        self.planned_input_tokens, self.planned_output_tokens = tokens
        self.request = request
        self.stream: StreamReader = KeepingReader() if keep else StreamReader()
        self.sent_s: float | None = None
        self.end_s: float | None = None
        self.status: int | None = None
        self.error: ErrorClass | None = None
        self.error_message: str | None = None
        self.bytes_received = 0
        self.reused = False
        self.dropped = False

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.end_s is not None

    @property
    def first_token_s(self) -> float | None:
        """Receipt of the first chunk that carried a token."""
        return self.stream.chunk_s[0] if self.stream.chunk_s else None

    @property
    def last_token_s(self) -> float | None:
        """Receipt of the last chunk that carried a token."""
        return self.stream.chunk_s[-1] if self.stream.chunk_s else None

    def finish(self, at_s: float, error: ErrorClass | None = None, message: str | None = None) -> None:
        """The end, with its error if it was none of a complete stream; only the first call counts."""
        if self.ended:
            return
        self.stream.close(at_s)
        self.end_s = at_s
        self.request = b""
        if self.stream.error is not None and error not in (ErrorClass.TIMEOUT, ErrorClass.ABORTED):
            self.error, self.error_message = self.stream.error, self.stream.error_message
        else:
            self.error, self.error_message = error, message

    def judge_age(self, timeout_s: float) -> None:
        """A stream that ended well, but later than the timeout, has timed out: looks for old requests are rare."""
        if self.error is None and self.end_s is not None and self.end_s - self.scheduled_s > timeout_s:
            self.error, self.error_message = ErrorClass.TIMEOUT, f"not finished within {timeout_s:g} s"

    def complete(self, at_s: float) -> None:
        """The response ended as HTTP has it: was it also a whole stream?"""
        self.stream.close(at_s)
        if not self.stream.complete and self.stream.finish_reason is None:
            self.finish(at_s, ErrorClass.TRUNCATED, self._cut("the response ended"))
        elif not self.stream.tokens:
            self.finish(at_s, ErrorClass.NO_TOKENS, "the stream ended without a token")
        else:
            self.finish(at_s)

    def cut(self, at_s: float, why: str) -> None:
        """The connection ended before the response did."""
        self.stream.close(at_s)
        if self.stream.complete:
            self.complete(at_s)
        elif self.status is None:
            self.finish(at_s, ErrorClass.CONNECT, f"the connection ended without a response ({why})")
        else:
            self.finish(at_s, ErrorClass.TRUNCATED, self._cut(f"the connection ended ({why})"))

    def _cut(self, how: str) -> str:
        return f"{how} after {self.stream.tokens} of {self.planned_output_tokens} tokens, without [DONE]"

    def progress(self) -> RequestProgress:
        """A reading while the load runs."""
        return RequestProgress(
            index=self.index,
            scheduled_s=self.scheduled_s,
            sent_s=self.sent_s,
            first_token_s=self.first_token_s,
            first_tokens=self.stream.first_tokens,
            last_token_s=self.last_token_s,
            tokens=self.stream.tokens,
            ended=self.ended,
            error=self.error,
        )

    def record(self) -> RequestRecord:
        """All that is known."""
        stream = self.stream
        return RequestRecord(
            phase=self.phase,
            index=self.index,
            scheduled_s=self.scheduled_s,
            planned_input_tokens=self.planned_input_tokens,
            planned_output_tokens=self.planned_output_tokens,
            sent_s=self.sent_s,
            first_token_s=self.first_token_s,
            last_token_s=self.last_token_s,
            end_s=self.end_s,
            chunk_s=array("d", stream.chunk_s),
            chunk_tokens=array("q", stream.chunk_tokens),
            prompt_tokens=stream.prompt_tokens,
            cached_tokens=stream.cached_tokens,
            output_tokens=stream.output_tokens,
            tokens_estimated=stream.estimated,
            finish_reason=stream.finish_reason,
            status=self.status,
            error=self.error,
            error_message=self.error_message,
            bytes_received=self.bytes_received,
            connection_reused=self.reused,
            prompt_ids=stream.prompt_ids,
            output_ids=stream.output_ids,
        )

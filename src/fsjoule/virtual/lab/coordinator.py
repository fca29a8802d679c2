"""labgrid's coordinator for one user: `python -m fsjoule.virtual.lab.coordinator --listen 127.0.0.1:PORT`.

labgrid asks nobody who they are (its PR 1885 adds TLS). Who may add an exporter and change a place's matches makes the
place's user run programs: labgrid hands some of a resource's words to a shell. On a computer with several accounts each
of them would become the lab's user, who may be root.
"""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import unquote

import grpc
import grpc.aio

from fsjoule.host.peer import is_ours

_REFUSAL: Final = "this lab is another user's"


class OwnUserOnly(grpc.aio.ServerInterceptor):
    """Refuses all requests that do not come from this user or root. `port` is the server's, at 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - gRPC's
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        coders = {each: getattr(handler, each) for each in ("request_deserializer", "response_serializer")}
        if handler.response_streaming:

            async def answers(requests: Any, context: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - gRPC's
                await self._check(context)
                # labgrid's cleanup of a client's session is at the end of its generator.
                async with aclosing(handler.stream_stream(requests, context)) as stream:
                    async for each in stream:
                        yield each

            return grpc.stream_stream_rpc_method_handler(answers, **coders)

        async def answer(request: Any, context: Any) -> Any:  # noqa: ANN401 - gRPC's
            await self._check(context)
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(answer, **coders)

    async def _check(self, context: Any) -> None:  # noqa: ANN401 - gRPC's
        # ipv4:127.0.0.1:1234 or ipv6:[::ffff:127.0.0.1]:1234 with %5B for [; another 127.x.x.x is another's, too.
        kind, _, peer = unquote(context.peer()).partition(":")
        host, _, port = peer.rpartition(":")
        address = host.strip("[]").removeprefix("::ffff:")
        if kind not in ("ipv4", "ipv6") or not is_ours((address, int(port)), ("127.0.0.1", self._port)):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, _REFUSAL)


def main() -> None:
    port = int(sys.argv[-1].rpartition(":")[2])
    grpc.aio.server = functools.partial(grpc.aio.server, interceptors=(OwnUserOnly(port),))
    runpy.run_module("labgrid.remote.coordinator", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

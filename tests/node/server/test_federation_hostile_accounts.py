"""Limits on the work that an account can cause at its home."""

from functools import partial

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._node.errors import CallRefused, TunnelRefusedError
from parley._node.federation.limits import DIALS_OF_ACCOUNT, TUNNELS_OF_ACCOUNT
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import ResultCode
from parley._node.remote.stream import Stream
from parley._node.tunnels.dial import dial_tunnel
from tests.inspection import error_code_of
from tests.node.network import config, eventually
from tests.node.server.ring import servers
from tests.node.server.test_federation_reach import TRACE, asked, by_home, logged_in, offer
from tests.node.server.test_tunnel_dialer_blame import let_account

pytestmark = pytest.mark.anyio

ROW = [(0, 1), (1, 2)]


async def test_subscriptions_elsewhere_count_as_dials() -> None:
    async with servers(3, ROW, accounts="any", follow=("news",)) as three:
        client = Node(Identity.create(), config=config(), clock=three.clock)
        async with client:
            await three.until(three.know_all)
            home = await logged_in(three, client, 0)
            codes = []
            burst = int(DIALS_OF_ACCOUNT.burst)
            for _ in range(burst + 5):
                with pytest.raises(CallRefused) as refused:
                    await home.subscribe(f"news@{three.nodes[2].node_id}").__aenter__()
                codes.append(refused.value.code)
            allowed = [ResultCode.NOT_AUTHORISED] * burst
            assert codes == [*allowed, *[ResultCode.OVERLOADED] * 5]
            to = [three.nodes[2].node_id]
            with pytest.raises(TunnelRefusedError) as caught:
                await dial_tunnel(home, to=to, trace=TRACE, timeout=5)
            assert caught.value.code == ResultCode.OVERLOADED
            # Others keep their limits.
            await three.federations[0].reach(three.nodes[2].node_id)


async def test_tunnels_end_with_the_account() -> None:
    async with servers(3, ROW, accounts="any", exports=("who",)) as three:
        offer(three.nodes)
        client = Node(Identity.create(), config=config(), clock=three.clock)
        async with client:
            await three.until(three.know_all)
            three.network.add(client)
            # It has never logged in, so no peer could reach it.
            home = await three.network.dial_from(client)(three.network.address(three.nodes[0]))
            target = three.nodes[2].node_id
            peer = await client.connections.connect_by(
                [by_home(home, target)], target, name="by home"
            )
            by_itself = await three.federations[1].reach(target)
            assert (await asked(peer))[0] == 2
            three.federations[0]._hosted._change(frozenset())
            await eventually(lambda: not peer.is_open)
            await eventually(lambda: not three.federations[0].tunnels)
            assert home.is_open
            assert by_itself.is_open
            with pytest.raises(TunnelRefusedError) as caught:
                await dial_tunnel(home, to=[target], trace=TRACE, timeout=5)
            assert caught.value.code == ResultCode.NOT_AUTHORISED


async def test_idle_tunnels_to_an_account_do_not_block_others() -> None:
    async with servers(3, ROW, accounts="any") as three:
        target, hostile, good, beside = (
            Node(Identity.create(), config=config(), clock=three.clock) for _ in range(4)
        )
        offer([target])
        async with target, hostile, good, beside:
            await three.until(three.know_all)
            home = three.nodes[0]
            await logged_in(three, target, 0)
            to = [home.node_id, target.node_id]
            by_hostile = await logged_in(three, hostile, 0)
            tunnels = []
            for _ in range(TUNNELS_OF_ACCOUNT):
                await three.clock.tick(0.2)
                tunnels.append(await dial_tunnel(by_hostile, to=to, trace=TRACE, timeout=5))
            with pytest.raises(TunnelRefusedError) as caught:
                await dial_tunnel(by_hostile, to=to, trace=TRACE, timeout=5)
            assert caught.value.code == ResultCode.OVERLOADED
            # An account here, an account of another server, and a server.
            for client, at in ((beside, 0), (good, 2)):
                peer = await client.connections.connect_by(
                    [by_home(await logged_in(three, client, at), *to)], to[-1], name="by home"
                )
                assert (await asked(peer))[0] == 0
            assert (await asked(await three.federations[1].reach(*to)))[0] == 0
            # The longest idle ones were evicted.
            await eventually(
                lambda: all(error_code_of(one.stream) is not None for one in tunnels[:3])
            )
            assert all(error_code_of(one.stream) is None for one in tunnels[3:])


async def test_unanswered_dials_to_an_account_do_not_keep_others_from_it() -> None:
    async with servers(3, ROW, accounts="any") as three:
        target, hostile, good = (
            Node(Identity.create(), config=config(), clock=three.clock) for _ in range(3)
        )
        dialled: list[Stream] = []

        async def keep(stream: Stream) -> None:
            dialled.append(stream)
            await anyio.sleep_forever()

        async with target, hostile, good, anyio.create_task_group() as tasks:
            await three.until(three.know_all)
            to = [three.nodes[0].node_id, target.node_id]
            await logged_in(three, target, 0)
            let_account(target, keep)
            codes: list[int] = []

            async def dial(by: Peer) -> None:
                with pytest.raises(TunnelRefusedError) as caught:
                    await dial_tunnel(by, to=to, trace=TRACE, timeout=5)
                codes.append(caught.value.code)

            by_hostile = await logged_in(three, hostile, 0)
            for number in range(TUNNELS_OF_ACCOUNT):
                await three.clock.tick(0.2)
                tasks.start_soon(dial, by_hostile)
                await eventually(partial(lambda count: len(dialled) == count, number + 1))
            tasks.start_soon(dial, await logged_in(three, good, 0))
            await eventually(lambda: len(dialled) == TUNNELS_OF_ACCOUNT + 1)
            await eventually(lambda: codes == [ResultCode.OVERLOADED])  # one of the hostile node
            tasks.cancel_scope.cancel()

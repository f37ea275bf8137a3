//! What is particular to 0.17: handlers end without a word, and a wait is for one reply.

use async_trait::async_trait;
use bromine_0_17 as bromine;
use serde_json::Value;

use crate::address::Listening;
use crate::output;
use bromine::prelude::*;

#[path = "load.rs"]
mod load;
#[path = "peer.rs"]
pub mod peer;

type Octets = Vec<u8>;
type Outcome = ();

fn done() -> IPCResult<Outcome> {
    Ok(())
}

/// A handler can't return anything: its last word is one more reply.
async fn done_with(ctx: &Context, last: SerdePayload<Value>) -> IPCResult<Outcome> {
    ctx.emit("last", last).await?;
    done()
}

fn type_of(_: &Event) -> Value {
    Value::Null
}

async fn replies(
    _: &Context,
    _: peer::Emission,
    _: impl FnMut(IPCResult<Event>),
) -> Result<(), String> {
    Err("this version has no stream of replies".to_owned())
}

/// The crate's own listener, which says where it listens as soon as it does.
struct Announced<L>(L);

#[async_trait]
impl<L> AsyncStreamProtocolListener for Announced<L>
where
    L: AsyncStreamProtocolListener + Listening,
{
    type AddressType = L::AddressType;
    type RemoteAddressType = L::RemoteAddressType;
    type Stream = L::Stream;

    async fn protocol_bind(address: Self::AddressType) -> IPCResult<Self> {
        let listener = L::protocol_bind(address).await?;
        output::ready(&listener.listens_at()?);
        Ok(Self(listener))
    }

    async fn protocol_accept(&self) -> IPCResult<(Self::Stream, Self::RemoteAddressType)> {
        self.0.protocol_accept().await
    }
}

//! What is particular to 0.22: events have a type, and a handler's end is an event with a payload.

use std::future::poll_fn;
use std::pin::Pin;

use async_trait::async_trait;
use bromine_0_22 as bromine;
use futures_core::Stream;
use serde_json::{json, Value};

use crate::address::Listening;
use crate::output;
use bromine::event::EventType;
use bromine::prelude::*;

#[path = "load.rs"]
mod load;
#[path = "peer.rs"]
pub mod peer;

type Octets = bromine::bytes::Bytes;
type Outcome = Response;

fn done() -> IPCResult<Outcome> {
    Ok(Response::empty())
}

async fn done_with(ctx: &Context, last: SerdePayload<Value>) -> IPCResult<Outcome> {
    ctx.response(last)
}

fn type_of(event: &Event) -> Value {
    json!(match event.event_type() {
        EventType::Initiator => "initiator",
        EventType::Response => "response",
        EventType::End => "end",
        EventType::Error => "error",
    })
}

/// Every reply and the end, or an error: the stream must not be asked again after one.
async fn replies(
    ctx: &Context,
    emission: peer::Emission,
    mut seen: impl FnMut(IPCResult<Event>),
) -> Result<(), String> {
    let emitted = match emission.namespace {
        Some(namespace) => ctx.emit_to(namespace, emission.name, emission.load),
        None => ctx.emit(emission.name, emission.load),
    };
    let mut stream = emitted
        .stream_replies()
        .with_timeout(emission.timeout)
        .await
        .map_err(|error| format!("{error:?}"))?;
    while let Some(reply) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
        let failed = reply.is_err();
        seen(reply);
        if failed {
            break;
        }
    }
    Ok(())
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
    type ListenerOptions = L::ListenerOptions;

    async fn protocol_bind(
        address: Self::AddressType,
        options: Self::ListenerOptions,
    ) -> IPCResult<Self> {
        let listener = L::protocol_bind(address, options).await?;
        output::ready(&listener.listens_at()?);
        Ok(Self(listener))
    }

    async fn protocol_accept(&self) -> IPCResult<(Self::Stream, Self::RemoteAddressType)> {
        self.0.protocol_accept().await
    }
}
